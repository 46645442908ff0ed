"""What pages embed is archived with them, from any host, each once, and is no page."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crawler.sinks.reader import read_rows, records_in
from tests.site import TEXT, Reply, Request, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

CSS, PNG, FRAME = {"Content-Type": "text/css"}, {"Content-Type": "image/png"}, {"Content-Type": "text/html"}
PICTURE = Reply(b"\x89PNG picture", headers=PNG)

WEB = {
    ("site.test", "/"): Reply(
        "<a href=/both.png><img src=/both.png></a>"
        "<link rel=stylesheet href=/style.css><link rel=icon href=/icon.png><img src=/linked.png>"
        "<img src=/small.png srcset='/large.png 2x'>"
        "<script src=http://cdn.test/app.js></script><img src=/missing.png><img src=/secret/x.png>"
        "<img src=/moved.png><div style='background: url(/div.png)'></div><iframe src=http://frames.test/frame></iframe>"
        "<img src=http://blocked.test/ad.png><a href=/second>second</a><a href=http://cdn.test/page>away</a>"
    ),
    ("site.test", "/second"): Reply(
        "<link rel=stylesheet href=/style.css><a href=/linked.png>picture</a><a href=/large.png>large</a>"
        "<img src=/last.png>"
    ),
    ("site.test", "/robots.txt"): Reply("User-agent: *\nDisallow: /secret/\n", headers=TEXT),
    ("cdn.test", "/robots.txt"): Reply("Sitemap: /sitemap.xml\n", headers=TEXT),
    ("cdn.test", "/sitemap.xml"): Reply("<urlset><url><loc>/page</loc></url></urlset>"),
    ("site.test", "/style.css"): Reply("@import 'more.css'; a { background: url(a.png) }", headers=CSS),
    ("site.test", "/more.css"): Reply("@font-face { src: url(http://cdn.test/font.woff2) }", headers=CSS),
    ("site.test", "/moved.png"): Reply(status=302, headers={"Location": "http://cdn.test/here.png"}),
    ("frames.test", "/frame"): Reply("<img src=in-frame.png><a href=/frame-link>link</a>"),
    **dict.fromkeys(
        [
            *[
                ("site.test", f"/{name}.png")
                for name in ("both", "icon", "linked", "small", "large", "div", "a", "last")
            ],
            *[("cdn.test", path) for path in ("/app.js", "/font.woff2", "/here.png", "/page")],
            ("frames.test", "/in-frame.png"),
        ],
        PICTURE,
    ),
}
LINKED = [f"/{name}.png" for name in ("both", "linked", "large")]
OF_SITE = ["/", "/second", "/style.css", "/more.css", "/moved.png", "/missing.png"]
OF_SITE += [f"/{name}.png" for name in ("both", "icon", "linked", "small", "large", "div", "a", "last")]
ELSEWHERE = [("cdn.test", path) for path in ("/app.js", "/font.woff2", "/here.png")]
ELSEWHERE += [("frames.test", "/frame"), ("frames.test", "/in-frame.png")]


@contextlib.contextmanager
def served(**more: str) -> Iterator[tuple[Site, dict[str, str]]]:
    """The web, and settings for it, with `more`."""
    with Site(lambda request: WEB.get((request.host, request.path))) as site:
        yield (
            site,
            {
                "CRAWLER_FETCH__HOST_MAP": json.dumps(site.host_map("*")),
                "CRAWLER_POLITENESS__DELAY": "0.01",
                "CRAWLER_ARCHIVE__REQUISITES": "true",
                **more,
            },
        )


def asked_of(site: Site) -> list[tuple[str, str]]:
    """The requests except those for robots.txt."""
    return [(one.host, one.path) for one, _ in site.answered if one.path != "/robots.txt"]


def crawl(typed: Typed, *words: str, **more: str) -> tuple[list[tuple[str, str]], str]:
    """The requests, and what the command said."""
    with served(**more) as (site, environment):
        done = typed("crawl", "http://site.test/", "--quiet", *words, environment=environment)
        assert done.code == 0, done.err
        return asked_of(site), done.out + done.err


def test_what_pages_embed_is_fetched_once_and_is_a_page_if_it_is_linked(tmp_path: Path, typed: Typed) -> None:
    asked, said = crawl(typed, CRAWLER_SCOPE__EXCLUDE='["//blocked.test/"]')
    expected = Counter([*(("site.test", path) for path in OF_SITE), *ELSEWHERE])
    expected.update(("site.test", path) for path in ("/linked.png", "/large.png"))  # found as a link later
    assert Counter(asked) - expected == Counter()
    assert set(asked) == set(expected)

    lines = [json.loads(line) for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    pages = {line["url"] for line in lines}
    assert pages == {f"http://site.test{path}" for path in ("/", "/second", *LINKED)}

    found = json.loads(typed("status", "--json").out)
    assert found["done"] == len(pages)
    requisites = found["requisites"]
    assert requisites["http_404"] == requisites["robots"] == requisites["302"] == 1
    assert requisites["200"] + len(pages) == len(asked) - 2  # not those that are missing and moved
    assert found["open"] == found["dead"] == 0
    assert found["domains"] == 1
    assert "requisites" in said

    types = Counter[str]()
    for record in (record for path in tmp_path.rglob("*.warc.gz") for record in records_in(str(path))):
        if record.headers.get("WARC-Type") in ("response", "revisit"):
            types[record.headers.get("WARC-Resource-Type") or "page"] += 1
    assert types["stylesheet"] == 2
    assert types.total() == len(asked) + 3  # and a robots.txt of each host
    assert {row.page.url for path in tmp_path.rglob("*.warc.gz") for row in read_rows(path)} == pages
    audit = typed("audit", str(next(tmp_path.rglob("*.warc.gz")).parent), "--delay", "0.01")
    assert audit.code == 0, audit.out
    (broken,) = json.loads(typed("dead", "list", "--requisites", "--json").out)
    assert (broken["url"], broken["reason"]) == ("http://site.test/missing.png", "http_404")


def test_the_last_page_of_a_limit_has_its_requisites(tmp_path: Path, typed: Typed) -> None:
    asked, _ = crawl(typed, "--max-pages", "1")
    expected = {("site.test", path) for path in OF_SITE if path not in ("/second", "/last.png", "/both.png")}
    assert expected.union(ELSEWHERE) <= set(asked)
    found = json.loads(typed("status", "--json").out)
    assert found["done"] == 1


def test_by_default_nothing_that_pages_embed_is_fetched(tmp_path: Path, typed: Typed) -> None:
    asked, _ = crawl(typed, CRAWLER_ARCHIVE__REQUISITES="false")
    assert sorted(asked) == [("site.test", path) for path in ("/", "/both.png", "/large.png", "/linked.png", "/second")]


def test_broken_requisites_hold_up_no_pages(tmp_path: Path, typed: Typed) -> None:
    """Each page embeds an image with which the server backs off. Two are asked for before all pages are."""
    pages = [f"/page{number}" for number in range(6)]
    links = "".join(f"<a href={page}>page</a>" for page in pages)

    def respond(request: Request) -> Reply | str | None:
        if request.path in ("/", *pages):
            return f"<title>{request.path}</title>{links}<img src={request.path}.png>"
        return Reply(status=503) if request.path.endswith(".png") else None

    backoff = {f"CRAWLER_POLITENESS__{name}": "0.01" for name in ("BACKOFF_BASE", "BACKOFF_MAX")}
    with Site(respond) as site:
        environment = {"CRAWLER_FETCH__HOST_MAP": json.dumps(site.host_map("*")), "CRAWLER_POLITENESS__DELAY": "0.01"}
        environment |= {"CRAWLER_ARCHIVE__REQUISITES": "true", "CRAWLER_POLITENESS__TRIES": "2", **backoff}
        assert typed("crawl", "http://site.test/", "--quiet", environment=environment).code == 0
    assert not json.loads(typed("status", "--json").out)["put_off"]  # that is for shapes of URLs
    last_page = max(site.asked.index(page) for page in pages)
    before = [path for path in site.asked[:last_page] if path.endswith(".png")]
    assert len(set(before)) == len(before) <= 2
    assert {f"{page}.png" for page in pages} < set(site.asked)  # but all are


def test_a_domain_that_is_forgotten_leaves_no_requisites(tmp_path: Path, typed: Typed) -> None:
    """Those of other domains stay, also those that its frame embeds."""
    crawl(typed)

    def archived() -> set[tuple[str, str]]:
        records = (record for path in tmp_path.rglob("*.warc.gz") for record in records_in(str(path)))
        parts = (urlsplit(record.headers.get("WARC-Target-URI") or "") for record in records)
        return {(one.netloc, one.path) for one in parts if one.path != "/robots.txt"}

    def requisites() -> dict[str, int]:
        return json.loads(typed("status", "--json").out)["requisites"]

    before, counted = archived(), requisites()
    for domain in ("cdn.test", "frames.test"):
        forgotten = typed("forget", domain, "--json")
        assert forgotten.code == 0, forgotten.err
        assert json.loads(forgotten.out)["state"]["seen"] >= 2
    assert archived() == {one for one in before if one[0] not in ("cdn.test", "frames.test")} != before
    assert not [path for path in tmp_path.rglob("*.jsonl") if "cdn.test" in path.read_text()]
    assert requisites() == counted  # what became of them is no secret


def test_what_pages_embed_is_fetched_again_if_redis_has_lost_it(tmp_path: Path, typed: Typed) -> None:
    """Whether it was fetched is not known, and pages that embed it are not read again."""
    with served() as (site, environment):
        for words in (("crawl", "http://site.test/"), ("repair", "http://site.test/"), ("crawl", "http://site.test/")):
            before = len(asked_of(site))
            done = typed(*words, environment=environment)
            assert done.code == 0, done.err
            if words[0] == "crawl":
                shutil.rmtree(tmp_path / ".crawler", ignore_errors=True)
        again = set(asked_of(site)[before:])
    pages = {("site.test", path) for path in ("/", "/second", *LINKED)}
    assert again == {("site.test", path) for path in OF_SITE}.union(ELSEWHERE, [("blocked.test", "/ad.png")]) - pages
