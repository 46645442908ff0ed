"""How Redis stores the known pages of a domain: as records in buckets. `lua/page_records.lua` says what a record is.

A page takes two bytes more than its record. As a field of a hash and a member of a sorted set of its own, it would take
150 bytes more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from frontier.entries import Entry, parse_entry
from frontier.redis_keys import CrawlKeys, ShardKeys
from frontier.store import Store, command

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
