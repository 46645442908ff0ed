"""Makes known pages due now, for an operator who wants a fresh copy (`crawler refresh`), or because a sitemap says that
they have changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.known_pages import page_of, pages_in
from frontier.redis_keys import CrawlKeys
from frontier.scripts import REFRESH
from frontier.shard_identity import check_identity
from frontier.store import Argument, Reply, Store, command, script_call

BUCKETS_AT_ONCE = 16
"""Buckets of about 64 pages per call, which then takes 4 ms at most."""

PAGES_AT_ONCE = 250
"""Named pages per call."""

READ_AT_ONCE = 10
"""Buckets that are read and searched at a time."""

DOMAINS_AT_ONCE = 500


async def refresh_domain(store: Store, keys: CrawlKeys, domain: str, now_ms: int) -> int:
    """Make all known pages of `domain` due. Returns how many were not. Raises RedisAway and ShardLost."""
    refreshed = bucket = 0
    while bucket >= 0:
        found, bucket, _ = await _refresh(store, keys, domain, (now_ms, bucket, BUCKETS_AT_ONCE, 0))
        refreshed += found
    return refreshed


async def refresh_page(store: Store, keys: CrawlKeys, url: str, domain: str, now_ms: int) -> int:
    """Make the page `url` of `domain` due. Returns 0 if it is not known, or is due. Raises RedisAway and ShardLost."""
    return len(await refresh_pages(store, keys, [url], domain, now_ms))


async def refresh_pages(
    store: Store, keys: CrawlKeys, urls: Sequence[str], domain: str, now_ms: int, most: int = PAGES_AT_ONCE
) -> list[str]:
    """Make those of `urls`, at most PAGES_AT_ONCE of `domain`, due that are known pages and not due, up to `most`. Returns
    these. Raises RedisAway and ShardLost."""
    pages = {page_of(Entry(url, domain).raw): url for url in urls}
    _, _, named = await _refresh(store, keys, domain, (now_ms, 0, 0, most, *pages))
    return [pages[page] for page in named]


async def refresh_matching(
    store: Store, keys: CrawlKeys, domain: str, is_wanted: Callable[[str], bool], now_ms: int
) -> int:
    """Make those known pages of `domain` due whose URL is wanted. Returns how many were not. A page that moves to another
    bucket meanwhile is found there. Raises RedisAway and ShardLost."""
    refreshed = 0
    async for entries in _known(store, keys, domain):
        wanted = [page_of(entry.raw) for entry in entries if is_wanted(entry.url)]
        if wanted:
            refreshed += (await _refresh(store, keys, domain, (now_ms, 0, 0, len(wanted), *wanted)))[0]
    return refreshed


async def count_known(
    store: Store, keys: CrawlKeys, domain: str, is_wanted: Callable[[str], bool] = lambda url: True
) -> tuple[int, int]:
    """Return how many known pages `domain` has, and how many of them have a URL that is wanted. Raises RedisAway."""
    known = wanted = 0
    async for entries in _known(store, keys, domain):
        known += len(entries)
        wanted += sum(is_wanted(entry.url) for entry in entries)
    return known, wanted


async def domains_with_known_pages(store: Store, keys: CrawlKeys) -> AsyncIterator[str]:
    """The domains with known pages, some of them perhaps more than once. Raises RedisAway."""
    for of in keys.shards:
        cursor: int | None = None
        while cursor != 0:
            ((following, found),) = await store.send(
                [command("ZSCAN", of.revisits, cursor or 0, "COUNT", DOMAINS_AT_ONCE)]
            )
            cursor = int(following)
            for domain in found.keys() if isinstance(found, dict) else found[::2]:
                yield domain.decode()


async def _known(store: Store, keys: CrawlKeys, domain: str) -> AsyncIterator[list[Entry]]:
    """The known pages of `domain`, some buckets at a time."""
    name, at, buckets = keys.shards[shard_of(domain, len(keys.shards))].known(domain), 0, 1
    while at < buckets:
        names = range(at, at + READ_AT_ONCE)
        found, buckets = await store.send([command("HMGET", name, *names), command("HLEN", name)])
        yield [page.entry for records in found if records for page in pages_in(records, domain)]
        at += READ_AT_ONCE


async def _refresh(store: Store, keys: CrawlKeys, domain: str, words: Sequence[Argument]) -> tuple[int, int, list[str]]:
    number = shard_of(domain, len(keys.shards))
    of = keys.shards[number]
    reply: Reply
    (reply,) = await store.send([script_call(REFRESH, (of.stats, of.base), keys.identity, domain, *words)])
    check_identity(keys.crawl, [number], [reply])
    return int(reply[1]), int(reply[2]), [page.decode() for page in reply[3]]
