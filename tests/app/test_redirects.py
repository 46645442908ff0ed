"""Redirects that lead back to the same page: to set a cookie, or to another way of writing its URL."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl, Page
from tests.site import Reply, Request, Site

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


class Hosts(Site):
    """Hosts that send a visitor without their cookie away, each in its own way."""

    def respond(self, request: Request) -> Reply:
        host, path, cookie = request.host, request.path, request.headers["Cookie"] or ""
        if path == "/robots.txt":
            return Reply("User-agent: *\nDisallow: /secret?", headers={"Content-Type": "text/plain"})
        if location := self.location(host, path, f'{host[0]}="b c"==' in cookie):
            return Reply("moved", 302, {"Location": location, "Set-Cookie": f'{host[0]}="b c"==; Path=/'})
        links = ["/after"] if path == "/" else []
        if host == "written.test" and path == "/":
            links = [one.replace("%7E", "~") for one in [*WRITTEN, DENIED]]
        return Reply("".join(f"<a href='{one}'>x</a>" for one in links))

    def location(self, host: str, path: str, has_cookie: bool) -> str:
        match host:
            case "same.test":
                return "" if has_cookie else path
            case "over.test":  # over another URL of the same host
                if path.startswith("/start?back="):
                    return path.partition("=")[2]
                return "" if has_cookie else f"/start?back={path}"
            case "far.test":  # over two URLs of another one
                return "" if has_cookie or path != "/" else "http://login.test/one"
            case "login.test":
                return "/two" if path == "/one" else "http://far.test/"
            case "loop.test":
                return path
            case "circle.test":  # over ever new URLs
                return "/" if path.startswith("/start") else f"/start?number={len(self.answered)}"
            case "chain.test":  # twenty redirects
                number = int(path[1:] or 0)
                return f"/{number + 1}" if number < 20 else ""
            case _:
                written = PATHS.get(path.partition("?")[0].partition(";")[0].replace("%7E", "~").lower(), path)
                return "" if path == written else written


@pytest.fixture
def site() -> Iterator[Hosts]:
    with Hosts() as site:
        yield site


async def pages_of(site: Hosts, folder: Path, *seeds: str, **tables: Any) -> list[Page]:
    reach = {"fetch": {"host_map": [f"*=127.0.0.1:{site.port}"]}, "requests": [{"cookies": True}]}
    async with Crawl(seeds, settings=site.settings(folder) | reach | tables) as crawl:
        return [page async for page in crawl]


def asked(site: Hosts) -> list[str]:
    return [request.host + request.path for request, _ in site.answered if request.path != "/robots.txt"]


async def test_a_redirect_to_the_same_url_is_requested_once_more_and_counts_as_one_page(
    site: Hosts, tmp_path: Path
) -> None:
    pages = await pages_of(site, tmp_path, "http://same.test/", limits={"max_pages": 2})
    assert asked(site) == ["same.test/", "same.test/", "same.test/after"]
    assert [request.headers["Cookie"] for request, _ in site.answered[2:]] == ['s="b c"=='] * 2
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
    site: Hosts, tmp_path: Path, seed: str, detour: list[str]
) -> None:
    host = seed.removeprefix("http://")
    pages = await pages_of(site, tmp_path, seed)
    assert asked(site) == [host, *detour, host, f"{host}after"]
    assert [page.reason for page in pages if page.url == seed] == ["redirect", "ok"]


async def test_a_url_is_requested_as_its_site_writes_it_unless_robots_txt_denies_that(
    site: Hosts, tmp_path: Path
) -> None:
    pages = await pages_of(site, tmp_path, "http://written.test/")
    reasons = {page.url.removeprefix("http://written.test"): page.reason for page in pages}
    assert reasons.pop("/secret") == "robots"
    assert set(reasons.values()) == {"ok"}
    assert set(reasons) == {"/", "/~staff/", "/list", "/news/%D0%BF", "/app", "/offer"}
    assert {f"written.test{one}" for one in WRITTEN} <= set(asked(site))
    assert f"written.test{DENIED}" not in asked(site)


async def test_as_many_redirects_are_followed_as_by_browsers(site: Hosts, tmp_path: Path) -> None:
    pages = await pages_of(site, tmp_path, "http://chain.test/")
    assert [page.reason for page in pages] == ["redirect"] * 20 + ["ok"]


async def test_a_loop_ends_with_its_reason(site: Hosts, tmp_path: Path) -> None:
    (page,) = await pages_of(site, tmp_path, "http://loop.test/x")
    assert (page.outcome, page.reason) == ("dead", "redirect_loop")
    assert asked(site) == ["loop.test/x"] * 4


@pytest.mark.parametrize("rules", [[], ["every=1d"]])
@pytest.mark.parametrize(
    ("host", "reasons"), [("over", ["redirect", "redirect", "ok", "ok"]), ("circle", ["redirect"] * 8)]
)
async def test_a_detour_ends_also_in_a_crawl_that_visits_pages_again(
    site: Hosts, tmp_path: Path, host: str, reasons: list[str], rules: list[str]
) -> None:
    limits, recrawl = {"max_pages": 20}, {"rules": rules}
    pages = await pages_of(site, tmp_path, f"http://{host}.test/", limits=limits, recrawl=recrawl)
    assert [page.reason for page in pages] == reasons
    assert asked(site).count(f"{host}.test/") == 4 or host != "circle"
