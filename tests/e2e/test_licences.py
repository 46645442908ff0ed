"""A site that wants money for its pages: 402 is an answer and no error, and the licence offers of robots.txt are recorded.
All requests say who sends them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crawler import __version__
from tests.sinks import readers
from tests.site import TEXT, Reply, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

OFFER = "https://licences.test/rsl.xml"
CONTACT = "https://example.org/bot"

PAGES = {
    "/robots.txt": Reply(f"License: {OFFER}\nUser-agent: *\nDisallow: /no\nLicense: not-a-url\n", headers=TEXT),
    "/": Reply("<a href=/paid>paid</a> <a href=/no>no</a>"),
    "/paid": Reply("<p>pay first</p>", 402),
}


def test_a_page_for_money_ends_with_its_reason_and_offers_are_recorded(tmp_path: Path, typed: Typed) -> None:
    with Site(lambda request: PAGES[request.path]) as shop:
        environment = {
            "CRAWLER_FETCH__HOST_MAP": json.dumps(shop.host_map("*")),
            "CRAWLER_FETCH__CONTACT": CONTACT,
            "CRAWLER_POLITENESS__DELAY": "0.01",
        }
        done = typed("crawl", "http://shop.test/", "--quiet", environment=environment)
        assert done.code == 0, done.err
        status = json.loads(typed("status", "--json").out)
    # Each URL was requested once, with GET, by a crawler that says who it is.
    agent = f"peercrawl/{__version__} (+{CONTACT})"
    asked = sorted((one.method, one.path, one.headers["User-Agent"]) for one, _ in shop.answered)
    assert asked == [("GET", path, agent) for path in ("/", "/paid", "/robots.txt")]
    lines = {str(line["url"]): line for line in readers.lines(tmp_path / "crawl-out")}
    paid = lines["http://shop.test/paid"]
    assert (paid["outcome"], paid["reason"], paid["status"]) == ("denied", "payment_required", 402)
    assert status["reasons"]["denied:payment_required"] == 1
    assert all(line["licenses"] == [OFFER] for line in lines.values()), lines
    assert len(lines) == 3
    (warc,) = readers.warc_files(tmp_path / "crawl-out")
    found = [one.payload for one in readers.by_fastwarc(warc) if one.type == "metadata"]
    assert all(f"licenses: {OFFER}\r\n".encode() in payload for payload in found)
    assert len(found) == 2
