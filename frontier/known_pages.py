"""How Redis stores the known pages of a domain, and how they are made due.

They are records in buckets: `lua/page_records.lua` says what a record is.

A page takes two bytes more than its record. As a field of a hash and a member of a sorted set of its own, it would take
150 bytes more.

Pages are made due now for an operator who wants a fresh copy (`crawler refresh`), or because a sitemap says that they have
changed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from frontier.entries import Entry, parse_entry
from frontier.keys import CrawlKeys, ShardKeys
from frontier.scripts import REFRESH, Argument, command
from frontier.shards import send_to_shards, shard_call
from frontier.store import Store, scan

_HEAD = Struct(">HI")
_SIZE = 2  # bytes of a record that do not count


class KnownPage(NamedTuple):
    """A page that is visited again. `due_s`: when, in seconds of server time; its `entry` has the state of its visits."""

    due_s: int
    entry: Entry


def page_of(raw: str) -> str:
    """What identifies the page of the entry `raw` in its domain."""
    return raw[0] + raw[6:].partition(" ")[0]


def rest_of_record(entry: Entry) -> bytes:
    """What is stored of `entry`, behind the time of the next visit. The state of its visits is in hexadecimal digits."""
    raw, priority = entry.raw, repr(entry.priority).removesuffix(".0")
    provenance = f",{entry.provenance}" if entry.provenance else ""
    text = f"{page_of(raw)} {raw[1:3]}{raw[4]}{priority}{provenance} "
    return text.encode() + bytes.fromhex(entry.visit)


def pages_in(records: bytes, domain: str) -> Iterator[KnownPage]:
    """The pages in a bucket of `domain`."""
    for due_s, rest in _parsed(records):
        page, about, state = rest.split(b" ", 2)
        counts, _, provenance = about.decode().partition(",")
        raw = f"{page[:1].decode()}{counts[:2]}0{counts[2]}0{page[1:].decode()}"
        yield KnownPage(due_s, parse_entry(f"{raw} {provenance} {state.hex()}", domain, float(counts[3:])))


def without_via(records: bytes, is_gone: Callable[[str], bool]) -> tuple[bytes, int]:
    """A bucket without the pages where its URLs were found, if these are gone, and how many it named."""
    parts: list[bytes] = []
    changed = 0
    for due_s, rest in _parsed(records):
        page, about, state = rest.split(b" ", 2)
        counts, _, provenance = about.partition(b",")
        via, _, tag = provenance.partition(b"\t")
        if via and is_gone(via.decode()):
            kept = b"%b,\t%b" % (counts, tag) if tag else counts
            rest, changed = b" ".join((page, kept, state)), changed + 1
        parts += (_HEAD.pack(len(rest) + _HEAD.size - _SIZE, due_s), rest)
    return b"".join(parts), changed


def _parsed(records: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(records):
        size, due_s = _HEAD.unpack_from(records, at)
        yield due_s, records[at + _HEAD.size : at + _SIZE + size]
        at += _SIZE + size


def bucket_of(keys: CrawlKeys, page: str, buckets: int) -> int:
    """The bucket of `page` in a domain that has so many, computed as in `lua/page_records.lua`."""
    key = keys.identity.partition(":")[0]
    digest = hashlib.sha1(f"{key}{page}".encode(), usedforsecurity=False).hexdigest()
    half = 1 << (max(1, buckets).bit_length() - 1)
    bucket = int(digest[:8], 16) % (half * 2)
    return bucket if bucket < buckets else bucket - half


async def find_page(store: Store, keys: CrawlKeys, of: ShardKeys, bare: Entry) -> KnownPage | None:
    """The known page with the URL of `bare` in the shard `of`. Raises RedisAway."""
    name, page = of.known(bare.domain), page_of(bare.raw)
    (buckets,) = await store.send([command("HLEN", name)])
    while buckets:
        before, bucket = buckets, bucket_of(keys, page, buckets)
        records, buckets = await store.send([command("HGET", name, bucket), command("HLEN", name)])
        if buckets == before:  # otherwise, the page may have moved
            known = pages_in(records or b"", bare.domain)
            return next((one for one in known if page_of(one.entry.raw) == page), None)
    return None


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


async def refresh_due_by(store: Store, keys: CrawlKeys, due_s: float, now_ms: int) -> int:
    """Make known pages due that are planned until `due_s` (server time). Returns how many were not. Raises RedisAway
    and ShardLost."""
    domains = {domain async for domain in domains_with_known_pages(store, keys, due_s)}
    return sum([await _refresh_wanted(store, keys, one, lambda page: page.due_s <= due_s, now_ms) for one in domains])


async def refresh_matching(
    store: Store, keys: CrawlKeys, domain: str, is_wanted: Callable[[str], bool], now_ms: int
) -> int:
    """Make known pages of `domain` with a wanted URL due. Returns how many were not. Raises RedisAway and ShardLost."""
    return await _refresh_wanted(store, keys, domain, lambda page: is_wanted(page.entry.url), now_ms)


async def _refresh_wanted(
    store: Store, keys: CrawlKeys, domain: str, is_wanted: Callable[[KnownPage], bool], now_ms: int
) -> int:
    """As `refresh_matching`. A page that moves to another bucket meanwhile is found there."""
    refreshed = 0
    async for pages in _known(store, keys, domain):
        wanted = [page_of(page.entry.raw) for page in pages if is_wanted(page)]
        if wanted:
            refreshed += (await _refresh(store, keys, domain, (now_ms, 0, 0, len(wanted), *wanted)))[0]
    return refreshed


async def domains_with_known_pages(store: Store, keys: CrawlKeys, due_s: float = math.inf) -> AsyncIterator[str]:
    """The domains with known pages, some of them perhaps more than once. Of those that wait, only the domains whose first
    visit is planned until `due_s`, in seconds of server time. Raises RedisAway."""
    for of in keys.shards:
        async for found in scan(store, "ZSCAN", of.revisits, "COUNT", DOMAINS_AT_ONCE):
            for domain, first_ms in zip(found[::2], found[1::2], strict=True):
                if first_ms == b"inf" or float(first_ms) <= 1000 * due_s:
                    yield domain.decode()


async def _known(store: Store, keys: CrawlKeys, domain: str) -> AsyncIterator[list[KnownPage]]:
    name, at, buckets = keys.of(domain).known(domain), 0, 1
    while at < buckets:
        names = range(at, at + READ_AT_ONCE)
        found, buckets = await store.send([command("HMGET", name, *names), command("HLEN", name)])
        yield [page for records in found if records for page in pages_in(records, domain)]
        at += READ_AT_ONCE


async def _refresh(store: Store, keys: CrawlKeys, domain: str, words: Sequence[Argument]) -> tuple[int, int, list[str]]:
    shard = keys.shard_of(domain)
    (reply,) = await send_to_shards(store, keys, [(shard, shard_call(REFRESH, keys, shard, domain, *words))])
    return int(reply[1]), int(reply[2]), [page.decode() for page in reply[3]]
