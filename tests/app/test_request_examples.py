"""The programs in docs/how-to/send-requests.md, against sites like those that they name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.site import Reply, Request, Site

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "send-requests.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = [example for example in EXAMPLES if "crawl.run()" in example]
PAGES = 3

LOGIN = """<a href="/">Quotes</a><form action="/login" method="post"><input type="hidden" name="csrf_token" value="{}">
<input name="username"><input type="password" name="password"><input type="submit" value="Login"></form>"""
QUOTE = '<div class="quote"><span class="text">{}</span><small class="author">Ada</small></div>'


class Sites(Site):
    """A shop with a search by POST, and quotes: for scrolling, and behind a login with a token."""

    def respond(self, request: Request) -> Reply | str | None:
        path, query = urlsplit(request.path).path, parse_qs(urlsplit(request.path).query)
        match path:
            case "/api/search":
                number = json.loads(request.body)["page"]
                found = {"products": [{"id": number}], "more": number < PAGES}
                return Reply(json.dumps(found), 200, {"Content-Type": "application/json"})
            case "/api/quotes":
                number = int(query["page"][0])
                quote = {"text": str(number), "author": {"name": "Ada"}}
                found = {"quotes": [quote], "page": number, "has_next": number < PAGES}
                return Reply(json.dumps(found), 200, {"Content-Type": "application/json"})
            case "/login" if request.method == "POST":
                sent = parse_qs(request.body.decode())
                wanted = {"csrf_token": ["t0ken"], "username": ["ada"], "password": ["s3cret"]}
                cookie = {"Set-Cookie": "session=1; Path=/"} if sent == wanted else {}
                return Reply("", 302, {"Location": "/", **cookie})
            case "/login":
                return LOGIN.format("t0ken")
            case "/robots.txt":
                return None
        is_in = "session=1" in (request.headers["Cookie"] or "")
        number = int(path.removeprefix("/page/") or 1) if path.startswith("/page/") else 1
        following = f'<li class="next"><a href="/page/{number + 1}">Next</a></li>' if number < PAGES else ""
        return QUOTE.format(number) + following + ("<a href='/logout'>Logout</a>" if is_in else "<a href='/login'>")


@pytest.fixture
def sites() -> Iterator[Sites]:
    with Sites() as sites:
        yield sites


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_documentation_finds_all_items(sites: Sites, tmp_path: Path, number: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAMS[number])
    environment = {
        **os.environ,
        "CRAWLER_FETCH__HOST_MAP": json.dumps(sites.host_map("shop.example", "quotes.toscrape.com")),
        "CRAWLER_POLITENESS__DELAY": "0",
        "QUOTES_PASSWORD": "s3cret",
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }
    subprocess.run([sys.executable, "program.py"], cwd=tmp_path, env=environment, check=True, timeout=120)
    lines = b"".join(file.read_bytes() for file in tmp_path.glob("crawl-out/*.pages.jsonl")).splitlines()
    items = [item for line in map(json.loads, lines) for found in (line["items"] or {}).values() for item in found]
    if "products" in PROGRAMS[number]:
        assert sorted(item["id"] for item in items) == [1, 2, 3]
    else:
        assert sorted((item["text"], item["author"]) for item in items) == [(str(one), "Ada") for one in (1, 2, 3)]
    assert b"s3cret" not in b"".join(file.read_bytes() for file in tmp_path.glob("crawl-out/*"))
