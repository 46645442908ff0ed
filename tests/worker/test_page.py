"""Pages from exchanges."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from crawler.app.engine import build_settings, link_filter
from crawler.page import Outcome
from crawler.parse.child import DocumentOffloader
from crawler.scope.scope import RecentUrls
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ScopeTable
from crawler.worker import page
from crawler.worker.page import PageBuilder
from crawler.worker.verdict import UrlResult
from frontier.entries import Entry
from frontier.queue import Frontier
from frontier.store import Store
from politeness.robots_cache import RobotsCache, RobotsRecord
from politeness.robots_match import finish
from politeness.robots_syntax import extract
from tests.frontier.helpers import ManualTime
from tests.sinks.values import exchange
from tests.worker.helpers import control, runtime

NOW_MS = 1_790_000_000_000
LISTED = b"https://site.test/listed\n"

NAMED_SITEMAPS = CrawlSettings(scope=ScopeTable(guess_sitemaps=False))


async def test_the_sitemaps_that_a_robots_txt_names_are_read_once_for_all_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []

    def named_sitemaps(names: tuple[str, ...], origin: str, *rules: object) -> frozenset[str]:
        read.append(origin)
        return frozenset({"https://site.test/map.txt"})

    monkeypatch.setattr(page, "named_sitemaps", named_sitemaps)
    robots = RobotsCache(cast(Store, None), cast(Frontier, None), "bot")
    excerpt = finish(extract(b"Sitemap: /map.txt\nUser-agent: *\nDisallow: /no", "bot")).pack()
    await robots.keep("https://site.test", RobotsRecord("rules", "ok", 200, NOW_MS, NOW_MS + 86_400_000, excerpt))
    settings, links = build_settings(NAMED_SITEMAPS), link_filter(NAMED_SITEMAPS, RecentUrls(10))
    builder = PageBuilder(runtime(ManualTime()), settings, links, DocumentOffloader(), robots, control())
    found = []
    for name in ("other.txt", "map.txt"):
        entry = Entry(f"https://site.test/{name}", "site.test")
        text = exchange(name, LISTED, headers=((b"Content-Type", b"text/plain"),))
        _, links = await builder.build(entry, UrlResult(Outcome.DONE, "200"), text, 0.0)
        found.append([link.url for link in links])
    assert found == [[], ["https://site.test/listed"]]
    assert read == ["https://site.test"]


async def test_what_an_index_leads_to_is_a_sitemap_and_so_are_ten_thousand_names() -> None:
    robots = RobotsCache(cast(Store, None), cast(Frontier, None), "bot")
    settings, links = build_settings(NAMED_SITEMAPS), link_filter(NAMED_SITEMAPS, RecentUrls(10))
    builder = PageBuilder(runtime(ManualTime()), settings, links, DocumentOffloader(), robots, control())
    found = []
    for hops, chain in ((1, ""), (1, "mark"), (0, "")):
        text = exchange("map.txt", LISTED, headers=((b"Content-Type", b"text/plain"),))
        entry = Entry("https://site.test/map.txt", "site.test", hops=hops, chain=chain)
        _, links_found = await builder.build(entry, UrlResult(Outcome.DONE, "200"), text, 0.0)
        found.append([link.url for link in links_found])
    assert found == [["https://site.test/listed"], [], []]
    body = b"".join(b"Sitemap: /%d.xml\n" % number for number in range(10_001))
    excerpt = finish(extract(body, "bot"))
    entries = await builder.sitemaps("https://site.test", "site.test", excerpt.sitemaps)
    assert len({entry.url for entry in entries}) == 10_000


async def test_feeds_are_followed_from_seeds_and_what_they_list_from_anywhere() -> None:
    robots = RobotsCache(cast(Store, None), cast(Frontier, None), "bot")
    html = exchange(
        "p", b"<link rel=alternate type=application/atom+xml href=/feed>", headers=((b"Content-Type", b"text/html"),)
    )
    feed = exchange("f", b"<feed><entry><link href='/1'/></entry></feed>", headers=((b"Content-Type", b"text/xml"),))
    for kinds, expected in ((("feed",), [["/feed"], [], ["/1"], ["/1"]]), ((), [[], [], [], []])):
        settings = msgspec.structs.replace(CrawlSettings(), scope=ScopeTable(links=kinds, guess_sitemaps=False))
        links = link_filter(settings, RecentUrls(10))
        builder = PageBuilder(
            runtime(ManualTime()), build_settings(settings), links, DocumentOffloader(), robots, control()
        )
        found = []
        for answer in (html, feed):
            for depth in (0, 1):
                entry = Entry(answer.url, "site.test", depth=depth)
                _, links_found = await builder.build(entry, UrlResult(Outcome.DONE, "200"), answer, 0.0)
                found.append([link.url.removeprefix("https://site.test") for link in links_found])
        assert found == expected
