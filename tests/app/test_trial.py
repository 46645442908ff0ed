"""`crawler try`: one page, at most one request for it, and nothing that stays."""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import AsyncMock

import pytest

from crawler import Router, UserError
from crawler.app.trial import _OneRequest
from crawler.errors import FailureKind, FetchFailed
from crawler.testing import page as made_page
from frontier.urls import DEFAULT_RULES
from tests.e2e.harness import ROOT, Finished, Running
from tests.site import Reply, Request, Site
from tests.typed import Typed

APP = """
from crawler import Router
router = Router()

@router.handler("/broken")
def broken(page, crawl):
    raise ValueError("no such thing")

@router.handler("/page")
def page(page, crawl):
    crawl.push("headings", {"text": page.select_text("h1")})
    crawl.drop("/dropped")
    crawl.enqueue(["/first", "https://outside.test/"], priority=7)
"""


CONDITIONS = "broken ('/broken'), page ('/page')"


def respond(request: Request) -> Reply | str | None:
    if request.path == "/robots.txt":
        return "User-agent: *\nDisallow: /private"
    if request.path in ("/page", "/broken", "/other"):
        return "<title>T</title><h1>Hello</h1><a href=/one>1</a><a href=/dropped>2</a>"
    return Reply(status=302, headers={"Location": "/page"}) if request.path == "/moved" else None


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(respond) as site:
        yield site


def tried(folder: Path, site: Site, path: str, *words: str) -> Finished:
    (folder / "shop.py").write_text(APP)
    reach = [f"http://a.test{path}", "--app", "shop:router", "--host-map", *site.host_map("a.test")]
    environment = {"CRAWLER_POLITENESS__DELAY": "0"}
    command = [sys.executable, "-m", "crawler", "try", *reach, *words]
    return Running(command, folder, "try", environment).wait()


def test_items_links_and_what_would_be_queued_are_shown(tmp_path: Path, site: Site) -> None:
    done = tried(tmp_path, site, "/page")
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "http://a.test/page: done (ok), status 200, text/html",
        "title: T",
        "1 item",
        '  headings: {"text":"Hello"}',
        "handlers: page was called",
        "2 links, of which are not followed: outside 1",
        "2 URLs would be queued",
        "  http://a.test/first (priority 7)",
        "  http://a.test/one (priority -1)",
    ]
    assert site.asked == ["/robots.txt", "/page"]
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"shop.py", "try.out", "try.err"}


@pytest.mark.parametrize(
    ("path", "outcome", "reason", "queued", "finding"),
    [
        ("/broken", "dead", "handler_failed", [], "handlers: broken was called"),
        ("/other", "done", "ok", ["/dropped", "/one"], f"handlers: none is for this page: {CONDITIONS}"),
        ("/missing", "done", "http_404", [], "nothing looks for items: only pages with a 2xx status have them"),
        ("/private/x", "denied", "robots", [], "nothing looks for items: the page is denied (robots)"),
        ("/moved", "done", "redirect", ["/page"], "nothing looks for items: only pages with a 2xx status have them"),
    ],
)
def test_one_request_whatever_becomes_of_it(
    tmp_path: Path, site: Site, path: str, outcome: str, reason: str, queued: list[str], finding: str
) -> None:
    done = tried(tmp_path, site, path, "--json")
    found = json.loads(done.out)
    assert (found["outcome"], found["reason"]) == (outcome, reason), done.out
    assert done.code == (0 if outcome == "done" else 1)
    assert found["findings"] == [finding]
    assert [one["url"].removeprefix("http://a.test") for one in found["queued"]] == queued
    assert site.asked == ["/robots.txt", *([] if outcome == "denied" else [path])]


EXTRACT = """
[[extract]]
name = "products"
match = "/page"

[extract.fields]
name = { css = "h1", required = true }
price = { css = "title", type = "TYPE" }
"""


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("text", ["2 items", '  products: {"name":"Hello","price":"T"}', '  headings: {"text":"Hello"}']),
        ("int", ["1 item", '  headings: {"text":"Hello"}', "1 item rejected", "  products: price: type 'T'"]),
    ],
)
def test_what_the_settings_extract_is_shown(tmp_path: Path, site: Site, kind: str, told: list[str]) -> None:
    (tmp_path / "shop.toml").write_text(EXTRACT.replace("TYPE", kind))
    done = tried(tmp_path, site, "/page", "--settings", "shop.toml")
    assert done.code == 0, done.err
    assert done.out.splitlines()[2 : 2 + len(told)] == told


TABLES = """
[[extract]]
name = "none"
match = "/page"
[extract.fields]
url = { page = "url" }
sku = { json_ld = "Product.sku", required = true }
size = { css = ".size" }

[[extract]]
name = "wrong"
[extract.fields]
title = { css = "title" }
price = { css = "h1", regex = '\\w+', type = "decimal" }

[[extract]]
name = "each"
each = "a"
[extract.fields]
to = { attr = "href", type = "url" }
number = { css = "[data-n]", type = "int", required = true }

[[extract]]
name = "lists"
each = "li.product"
fields = { title = {} }

[[extract]]
name = "shoes"
match = "/shoes/[0-9]+"
fields = { title = { css = "h1" } }

[[extract]]
name = "feeds"
content_type = "application/xml"
fields = { title = { regex = "<title>(.*)" } }

[[extract]]
name = "good"
fields = { title = { css = "h1" }, tags = { css = ".tag", list = true } }
"""

FINDINGS = [
    "[[extract]] none: 0 items: sku: required, nothing found (json_ld 'Product.sku'); size: nothing found (css '.size')",
    "[[extract]] wrong: 0 items: price: 'Hello' is not of type decimal (css 'h1', regex '\\w+')",
    "[[extract]] each: 0 items: number: required, nothing found in 2 of 2 elements (css '[data-n]')",
    "[[extract]] lists: 0 items: each = 'li.product' selects no element",
    "[[extract]] shoes: not for this page: match '/shoes/[0-9]+' is not found in its URL",
    "[[extract]] feeds: not for this page, which is text/html, not application/xml",
    "[[extract]] good: 1 item: tags: nothing found (css '.tag')",
]


def test_it_says_what_each_table_has_found_and_what_not(tmp_path: Path, site: Site) -> None:
    (tmp_path / "shop.toml").write_text(TABLES)
    done = tried(tmp_path, site, "/page", "--settings", "shop.toml")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    at = lines.index(FINDINGS[0])
    assert lines[at : at + len(FINDINGS) + 1] == [*FINDINGS, "handlers: page was called"]
    told = json.loads(tried(tmp_path, site, "/page", "--settings", "shop.toml", "--json").out)
    assert told["findings"] == [*FINDINGS, "handlers: page was called"]


def test_handlers_are_described_with_their_conditions() -> None:
    router = Router()
    router.handler("/p/", content_type="text/html", label="product")(lambda page, crawl: None)
    router.handler()(lambda page, crawl: None)
    name = "test_handlers_are_described_with_their_conditions.<locals>.<lambda>"
    assert router.conditions == [f"{name} ('/p/', text/html, label 'product')", f"{name} (all pages)"]


async def test_nothing_is_requested_after_the_page() -> None:
    """Not even if the crawl gets that far before it ends."""
    inner = AsyncMock()
    http = _OneRequest(inner, "http://a.test/page", DEFAULT_RULES)
    for path in ("robots.txt", "page", "%70age"):  # the page redirects to itself
        await http.fetch(f"http://a.test/{path}")
    late = asyncio.ensure_future(http.fetch("http://a.test/other"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not late.done()
    late.cancel()
    asked = [f"http://a.test/{path}" for path in ("robots.txt", "page", "%70age")]
    assert [call.args[0] for call in inner.fetch.await_args_list] == asked


async def test_a_failure_is_forgotten_once_the_same_request_succeeds() -> None:
    inner = AsyncMock()
    inner.fetch.side_effect = [FetchFailed(FailureKind.OTHER_ADDRESS, "connected to 127.0.0.1"), None]
    http = _OneRequest(inner, "http://localhost/page", DEFAULT_RULES)
    with pytest.raises(FetchFailed):
        await http.fetch("http://localhost/robots.txt")
    await http.fetch("http://localhost/robots.txt")
    assert http.failure == ""


def test_a_refused_connection_is_named(typed: Typed) -> None:
    done = typed("try", "http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1")
    assert (done.code, done.out.splitlines()[:2]) == (
        1,
        ["http://127.0.0.1:1/: dead (robots_unreachable), no response, no type", "0 items"],
    )
    assert "http://127.0.0.1:1/robots.txt: connection refused" in done.out.splitlines()


def test_a_local_address_names_the_options_that_allow_it(typed: Typed) -> None:
    done = typed("try", "http://127.0.0.1:1/")
    assert done.code == 2
    assert "fetch.allow does not list 127.0.0.1 (loopback); add --port 1 --allow 127.0.0.1\n" in done.err


LABELLED = """
from crawler import Router
router = Router()

@router.handler(label="product")
def product(page, crawl):
    crawl.push("products", {"title": page.title, "h1": page.select_text("h1"), "shop": page.payload["shop"]})

@router.on_failure()
def failed(page, crawl):
    crawl.push("failures", {"status": page.status, "reason": page.reason})
"""

REPLAY = """
import sys
from pathlib import Path
from shop import router
from crawler.testing import page, recorded_items, run_handler

for folder in map(Path, sys.argv[1:]):
    assert run_handler(router, page(folder)).items == recorded_items(folder), folder
    print(page(folder).status, recorded_items(folder))
"""


def test_a_recorded_page_is_replayed_by_a_test(tmp_path: Path) -> None:
    body = "<meta charset=utf-8><title>Tee</title><h1>Grüner Tee</h1>"
    zipped = Reply(gzip.compress(body.encode()), 200, {"Content-Encoding": "gzip", "Set-Cookie": "id=7"})
    with Site(lambda request: zipped if request.path == "/tea" else None) as site:
        (tmp_path / "shop.py").write_text(LABELLED)
        for path, words in (("/tea", ["--label", "product", "--payload", '{"shop": "a b"}']), ("/none", [])):
            reach = [f"http://a.test{path}", "--app", "shop:router", "--host-map", *site.host_map("a.test")]
            command = [sys.executable, "-m", "crawler", "try", *reach, *words, "--record", f"pages{path}"]
            Running(command, tmp_path, "try", {"CRAWLER_POLITENESS__DELAY": "0"}).wait()
    (tmp_path / "replay.py").write_text(REPLAY)
    replay = [sys.executable, "replay.py", "pages/tea", "pages/none"]
    assert Running(replay, tmp_path, "replay", {"PYTHONPATH": str(ROOT)}).wait().out.splitlines() == [
        "200 {'products': [{'title': 'Tee', 'h1': 'Grüner Tee', 'shop': 'a b'}]}",
        "404 {'failures': [{'status': 404, 'reason': 'http_404'}]}",
    ]
    assert (tmp_path / "pages" / "tea" / "body.html").read_text() == body
    assert "set-cookie" not in (tmp_path / "pages" / "tea" / "page.json").read_text()
    (tmp_path / "pages" / "tea" / "body.html").write_text(body.replace("h1", "h2"))
    assert "AssertionError: pages/tea" in Running(replay, tmp_path, "again", {"PYTHONPATH": str(ROOT)}).wait().err


def test_labels_and_folders_that_cannot_be_used_are_refused(tmp_path: Path, typed: Typed) -> None:
    for words in (["--label", "a b"], ["--payload", "7"], ["--payload", "{"]):
        done = typed("try", "http://a.test/", *words)
        assert (done.code, done.err[:25]) == (2, "error: --label, --payload")
    with pytest.raises(UserError, match="has no page"):
        made_page(tmp_path)


FETCHING = """
from crawler import Router
router = Router()

@router.handler()
async def joined(page, crawl):
    price = await crawl.fetch("/price")
    file = await crawl.download("/image")
    moved = await crawl.fetch("/moved")
    crawl.push("products", {"price": price.json()["price"], "path": file.path, "moved": moved.text})
"""


def test_what_a_handler_has_fetched_is_replayed_with_its_page(tmp_path: Path) -> None:
    replies = {
        "/tea": Reply("tea"),
        "/price": Reply('{"price": 7}', 200, {"Content-Type": "application/json"}),
        "/image": Reply(b"\x89PNG", 200, {"Content-Type": "image/png"}),
        "/moved": Reply("", 302, {"Location": "/here"}),
        "/here": Reply("here"),
    }
    (tmp_path / "shop.py").write_text(FETCHING)
    replay = [sys.executable, "replay.py", "pages/tea"]
    (tmp_path / "replay.py").write_text(REPLAY)
    with Site(lambda request: replies.get(request.path)) as site:
        reach = ["http://a.test/tea", "--app", "shop:router", "--host-map", *site.host_map("a.test")]
        command = [sys.executable, "-m", "crawler", "try", *reach, "--record", "pages/tea"]
        Running(command, tmp_path, "try", {"CRAWLER_POLITENESS__DELAY": "0"}).wait()
    done = Running(replay, tmp_path, "replay", {"PYTHONPATH": str(ROOT)}).wait()
    assert "'price': 7, 'path': 'files/" in done.out, done.err
    assert "'moved': 'here'" in done.out
    assert sorted(path.name for path in (tmp_path / "pages" / "tea").iterdir()) == [
        *("1", "2", "3", "4"),
        "body.html",
        "page.json",
    ]
