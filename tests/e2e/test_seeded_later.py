"""A domain that is seeded during the crawl belongs to it from then on, including links that were seen before."""

from __future__ import annotations

import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.e2e.harness import Running, answering, toml, wait_until

pytestmark = pytest.mark.e2e


class Web(ThreadingHTTPServer):
    """Two sites: a.test has pages without end, and each links to the same page of b.test. `asked`: URLs, in order."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []

    def pages_of(self, host: str) -> list[str]:
        return [url for url in self.asked if url.startswith(f"{host}/") and not url.endswith("/robots.txt")]


class _Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        host = self.headers["Host"]
        self.server.asked.append(host + self.path)
        is_page = host == "a.test" and self.path[1:].isdigit()
        body = f'<a href=/{int(self.path[1:]) + 1}><a href="http://b.test/linked">' if is_page else "<p>a page"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_links_to_a_domain_that_is_seeded_later_are_followed(tmp_path: Path) -> None:
    with answering(Web()) as web:
        (tmp_path / "crawler.toml").write_text(
            toml(
                {
                    "politeness": {"delay": 0.05, "response_share": 0},
                    "fetch": {"host_map": [f"*.test=127.0.0.1:{web.server_port}"]},
                    "scope": {"kind": "seeds"},
                    "replica": {"data_dir": str(tmp_path / "data"), "out": str(tmp_path / "out"), "interval": 0.5},
                }
            )
        )
        words = [sys.executable, "-m", "crawler"]
        options = ["--settings", str(tmp_path / "crawler.toml")]

        def seed(url: str) -> None:
            done = Running([*words, "seed", *options, url], tmp_path, "seed", {}).wait()
            assert done.code == 0, done.err

        seed("http://a.test/0")
        crawler = Running([*words, "run", *options], tmp_path, "run", {})
        try:
            wait_until(lambda: len(web.pages_of("a.test")) >= 5, "pages that link to a domain outside the crawl")
            assert not web.pages_of("b.test")
            seed("http://b.test/")
            wait_until(lambda: "b.test/linked" in web.asked, "the page that was linked before")
        finally:
            crawler.send(signal.SIGTERM)
            done = crawler.wait()
        assert done.code == 0, done.err
    assert web.asked.count("b.test/linked") == 1
