"""Redirects that lead back to the same page: to set a cookie, or to another way of writing its URL."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl, Page
from tests.e2e.harness import answering

WRITTEN = [
    "/%7Estaff/",
    "/list?",
    "/news/%d0%bf",
    "/app;jsessionid=0123456789ABCDEF0123456789ABCDEF",
    "/offer?utm_source=x",
]
DENIED = "/secret?utm_source=x"
PATHS = {one.partition("?")[0].partition(";")[0].replace("%7E", "~").lower(): one for one in [*WRITTEN, DENIED]}
"""By path, in the way in which the crawl writes it and in lower case: the only way in which the site answers."""


class Site(BaseHTTPRequestHandler):
    """Hosts that send a visitor without their cookie away, each in its own way."""

    def do_GET(self) -> None:
        host, target = self.headers["Host"], self.path
        self.server.asked.append(host + target)  # type: ignore[attr-defined]
        self.server.cookies.append(self.headers["Cookie"])  # type: ignore[attr-defined]
        if target == "/robots.txt":
            self.answer(200, b"User-agent: *\nDisallow: /secret?", {"Content-Type": "text/plain"})
        elif location := self.location(host, target, self.headers["Cookie"] or ""):
            self.answer(302, b"moved", {"Location": location, "Set-Cookie": f'{host[0]}="b c"==; Path=/'})
        else:
            links = "".join(f"<a href='{one}'>x</a>" for one in self.links(host, target))
            self.answer(200, links.encode(), {"Content-Type": "text/html"})

    def location(self, host: str, target: str, cookie: str) -> str:
        has_cookie = f'{host[0]}="b c"==' in cookie
        match host:
            case "same.test":
                return "" if has_cookie else target
            case "over.test":  # over another URL of the same host
                if target.startswith("/start?back="):
                    return target.partition("=")[2]
                return "" if has_cookie else f"/start?back={target}"
            case "far.test":  # over two URLs of another one
                return "" if has_cookie or target != "/" else "http://login.test/one"
            case "login.test":
                return "/two" if target == "/one" else "http://far.test/"
            case "loop.test":
                return target
            case "circle.test":  # over ever new URLs
                count = len(self.server.asked)  # type: ignore[attr-defined]
                return "/" if target.startswith("/start") else f"/start?number={count}"
            case _:
                written = PATHS.get(target.partition("?")[0].partition(";")[0].replace("%7E", "~").lower(), target)
                return "" if target == written else written

    def links(self, host: str, target: str) -> list[str]:
        if host == "written.test" and target == "/":
            return [one.replace("%7E", "~") for one in [*WRITTEN, DENIED]]
        return ["/after"] if target == "/" else []

    def answer(self, status: int, body: bytes, fields: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    server.asked, server.cookies = [], []  # type: ignore[attr-defined]
    with answering(server):
        yield server


async def pages_of(site: ThreadingHTTPServer, folder: Path, *seeds: str, **tables: Any) -> list[Page]:
    settings = {
        "fetch": {"host_map": [f"*=127.0.0.1:{site.server_port}"]},
        "politeness": {"delay": 0},
        "requests": [{"cookies": True}],
        "replica": {"data_dir": str(folder), "out": str(folder / "out")},
    }
    async with Crawl(seeds, settings=settings | tables) as crawl:
        return [page async for page in crawl]


def asked(site: ThreadingHTTPServer) -> list[str]:
    return [one for one in site.asked if not one.endswith("/robots.txt")]  # type: ignore[attr-defined]


async def test_a_redirect_to_the_same_url_is_requested_once_more_and_counts_as_one_page(
    site: ThreadingHTTPServer, tmp_path: Path
) -> None:
    pages = await pages_of(site, tmp_path, "http://same.test/", limits={"max_pages": 2})
    assert asked(site) == ["same.test/", "same.test/", "same.test/after"]
    assert site.cookies[2:] == ['s="b c"=='] * 2  # type: ignore[attr-defined]
    assert [(page.url, page.reason) for page in pages] == [
        ("http://same.test/", "ok"),
        ("http://same.test/after", "ok"),
    ]
    (records,) = (tmp_path / "out").glob("*.warc.gz")
    statuses = [line for line in gzip.decompress(records.read_bytes()).splitlines() if line.startswith(b"HTTP/1.0 ")]
    assert statuses.count(b"HTTP/1.0 302 Found") == 1  # each response is in the archive


@pytest.mark.parametrize(
    ("seed", "detour"),
    [
        ("http://over.test/", ["over.test/start?back=/"]),
        ("http://far.test/", ["login.test/one", "login.test/two"]),
    ],
)
async def test_a_detour_that_leads_back_ends_at_the_page(
    site: ThreadingHTTPServer, tmp_path: Path, seed: str, detour: list[str]
) -> None:
    host = seed.removeprefix("http://")
    pages = await pages_of(site, tmp_path, seed)
    assert asked(site) == [host, *detour, host, f"{host}after"]
    assert [page.reason for page in pages if page.url == seed] == ["redirect", "ok"]


async def test_a_url_is_requested_as_its_site_writes_it_unless_robots_txt_denies_that(
    site: ThreadingHTTPServer, tmp_path: Path
) -> None:
    pages = await pages_of(site, tmp_path, "http://written.test/")
    reasons = {page.url.removeprefix("http://written.test"): page.reason for page in pages}
    assert reasons.pop("/secret") == "robots"
    assert set(reasons.values()) == {"ok"}
    assert set(reasons) == {"/", "/~staff/", "/list", "/news/%D0%BF", "/app", "/offer"}
    assert {f"written.test{one}" for one in WRITTEN} <= set(asked(site))
    assert f"written.test{DENIED}" not in asked(site)


async def test_a_loop_ends_with_its_reason(site: ThreadingHTTPServer, tmp_path: Path) -> None:
    (page,) = await pages_of(site, tmp_path, "http://loop.test/x")
    assert (page.outcome, page.reason) == ("dead", "redirect_loop")
    assert asked(site) == ["loop.test/x"] * 4


async def test_a_circle_over_new_urls_ends(site: ThreadingHTTPServer, tmp_path: Path) -> None:
    pages = await pages_of(site, tmp_path, "http://circle.test/")
    assert {page.reason for page in pages} == {"redirect"}
    assert asked(site).count("circle.test/") == 4
    assert len(pages) == 8


@pytest.mark.parametrize(
    ("host", "reasons"), [("over", ["redirect", "redirect", "ok", "ok"]), ("circle", ["redirect"] * 8)]
)
async def test_a_detour_ends_in_a_crawl_that_visits_pages_again(
    site: ThreadingHTTPServer, tmp_path: Path, host: str, reasons: list[str]
) -> None:
    limits, recrawl = {"max_pages": 20}, {"rules": ["every=1d"]}
    pages = await pages_of(site, tmp_path, f"http://{host}.test/", limits=limits, recrawl=recrawl)
    assert [page.reason for page in pages] == reasons
