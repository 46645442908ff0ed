"""Small sites with the oddities of real applications: what a crawl with its defaults makes of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from crawler import Crawl
from tests.app.test_traps import links, prose, settings, titled
from tests.site import Reply, Request, Site

XML = {"Content-Type": "application/xml"}


def respond(request: Request) -> Reply | str | None:
    path, _, query = request.path.partition("?")
    if path == "/robots.txt":
        return None
    match request.host, path:
        case "nofollow.test", "/":  # cgit, gitweb
            return titled("Repositories", "<meta name=robots content='index, nofollow'>", links("/a", "/b"))
        case "facet.test", "/":  # django-oscar: each link adds the same pair once more
            return titled("Shop", links(f"/?{query}{'&' if query else ''}f=rating%3A1", "/item"))
        case "noscript.test", "/":
            return titled("Home", "<noscript><a href=/real>without scripts</a></noscript>", links("/b"))
        case "near.test", "/":  # Trac, MediaWiki: the old version is reached first
            return titled("Home", links("/wiki?version=1", "/mid"))
        case "near.test", "/mid":
            return titled("Mid", f"<p>{prose(1, 200)}", links("/wiki"))
        case "near.test", "/wiki":
            old = "<meta name=robots content='noindex, follow'>" if query else ""
            return titled("Wiki (version 1)" if old else "Wiki", old, f"<p>{prose(2, 200)}")
        case "sitemap.test", "/":  # Docusaurus, VitePress, Hugo
            return titled("Docs")
        case "sitemap.test", "/sitemap.xml":
            return Reply("<urlset><url><loc>http://sitemap.test/orphan</loc></url></urlset>", headers=XML)
        case "https.test", "/":
            return titled("Home", links(*(f"/p{number}" for number in range(50)), "https://https.test/secure"))
        case _, "/sitemap.xml":
            return None
        case _:
            return titled(path, prose(len(path)))


@pytest.mark.parametrize(
    ("site", "expected", "most"),
    [
        ("nofollow", {"/"}, 1),
        ("facet", {"/", "/item"}, 5),
        ("noscript", {"/", "/real", "/b"}, 3),
        ("near", {"/", "/wiki", "/wiki?version=1", "/mid"}, 4),
        ("sitemap", {"/", "/orphan", "/sitemap.xml"}, 3),
    ],
)
async def test_each_page_is_found_and_the_crawl_ends(tmp_path: Path, site: str, expected: set[str], most: int) -> None:
    """The page that says noindex is no original of the current one."""
    with Site(respond) as server:
        own = settings(server, tmp_path, scope={"guess_sitemaps": True}, archive={"near_duplicates": "drop"})
        async with Crawl([f"http://{site}.test/"], settings=own) as crawl:
            found = [page async for page in crawl]
    near_of = {page.url for page in found if page.content is not None and page.content.near_of}
    pages = {page.url.removeprefix(f"http://{site}.test") for page in found if page.reason == "ok"}
    assert expected <= pages
    assert len(pages) <= most
    assert f"http://{site}.test/wiki" not in near_of


async def test_dead_https_links_hold_up_no_crawl_whose_host_answers_over_http(tmp_path: Path) -> None:
    """The robots.txt of https is asked for twice, and not as often as a page has tries."""
    with Site(respond) as server:
        polite = {"delay": 0, "address_rate_limit": "off", "backoff_base": 1, "tries": 9}
        own = settings(server, tmp_path, politeness=polite)
        async with asyncio.timeout(60), Crawl(["http://https.test/"], settings=own) as crawl:  # nine tries take 255 s
            found = {page.url: page async for page in crawl}
    assert len(found) == 52
    dead = found["https://https.test/secure"]
    assert (dead.outcome, dead.reason) == ("dead", "robots_unreachable")
    assert sum(page.reason == "ok" for page in found.values()) == 51
