"""A site that wants money for its pages: 402 is an answer and no error, and the licence offers of robots.txt are recorded.
All requests say who sends them."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from crawler import __version__
from tests.e2e.harness import answering
from tests.sinks import readers
from tests.typed import Typed

pytestmark = pytest.mark.e2e

OFFER = "https://licences.test/rsl.xml"
CONTACT = "https://example.org/bot"


class Shop(ThreadingHTTPServer):
    """A page that links to one that has to be paid for. `asked`: (method, path, User-Agent), in order."""

    daemon_threads = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        super().__init__(("127.0.0.1", 0), _Shop)


class _Shop(BaseHTTPRequestHandler):
    server: Shop

    def handle_one_request(self) -> None:
        self.raw_requestline = self.rfile.readline(65_537)
        if not self.raw_requestline or not self.parse_request():
            self.close_connection = True
            return
        self.server.asked.append((self.command, self.path, self.headers["User-Agent"]))
        pages = {
            "/robots.txt": (200, f"License: {OFFER}\nUser-agent: *\nDisallow: /no\nLicense: not-a-url\n"),
            "/": (200, "<a href=/paid>paid</a> <a href=/no>no</a>"),
            "/paid": (402, "<p>pay first</p>"),
        }
        status, body = pages[self.path]
        self.send_response(status)
        self.send_header("Content-Type", "text/html" if self.path != "/robots.txt" else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


def test_a_page_for_money_ends_with_its_reason_and_offers_are_recorded(tmp_path: Path, typed: Typed) -> None:
    with answering(Shop()) as shop:
        environment = {
            "CRAWLER_FETCH__HOST_MAP": json.dumps([f"*=127.0.0.1:{shop.server_port}"]),
            "CRAWLER_FETCH__CONTACT": CONTACT,
            "CRAWLER_POLITENESS__DELAY": "0.01",
        }
        done = typed("crawl", "http://shop.test/", "--quiet", environment=environment)
        assert done.code == 0, done.err
        status = json.loads(typed("status", "--json").out)
    # Each URL was requested once, with GET, by a crawler that says who it is.
    agent = f"peercrawl/{__version__} (+{CONTACT})"
    assert sorted(shop.asked) == [("GET", path, agent) for path in ("/", "/paid", "/robots.txt")]
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
