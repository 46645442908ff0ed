"""Splits pushed URLs into parts that block neither the server nor the event loop for long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from frontier.entries import Entry, PushMode

PUSH_CHUNK = 250
"""URLs per push call. It takes about a millisecond, and 7 at most in a queue of a million URLs, where 10 are the limit of a
script. Lua's unpack() takes up to about 8,000 values."""

PUSH_BATCH = 500
"""URLs per round trip, approximately. Packing this many blocks the event loop for 3 ms."""

Group = tuple[str, PushMode]
"""A domain, and the mode in which its URLs are pushed."""

Chunk = tuple[int, dict[Group, list[Entry]]]
"""The contents of one push call: a shard, and the entries by group."""


class PushReply(msgspec.Struct, frozen=True):
    """How many pushed URLs were queued, were seen before, were dropped because their domain is full, and were dropped
    because the crawl does not know their domain or has forgotten it. `shards`: those in which URLs were queued."""

    accepted: int = 0
    seen: int = 0
    capped: int = 0
    outside: int = 0
    shards: frozenset[int] = frozenset()


def requeued_seeds(by_shard: Mapping[int, Mapping[Group, list[Entry]]]) -> dict[tuple[int, str], list[Entry]]:
    """Return the entries with mode "again", by shard and domain."""
    return {
        (shard, domain): entries
        for shard, groups in by_shard.items()
        for (domain, mode), entries in groups.items()
        if mode == "again"
    }


def batches(chunks: Sequence[Chunk]) -> Iterable[list[Chunk]]:
    """Split `chunks` into parts of about `PUSH_BATCH` entries."""
    batch: list[Chunk] = []
    size = 0
    for shard, groups in chunks:
        batch.append((shard, groups))
        size += sum(map(len, groups.values()))
        if size >= PUSH_BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def chunks(groups: dict[Group, list[Entry]], size: int) -> Iterable[dict[Group, list[Entry]]]:
    """Split `groups` into parts of at most `size` entries."""
    chunk: dict[Group, list[Entry]] = {}
    room = size
    for group, entries in groups.items():
        at = 0
        while at < len(entries):
            chunk[group] = entries[at : at + room]
            at += len(chunk[group])
            room -= len(chunk[group])
            if room == 0:
                yield chunk
                chunk, room = {}, size
    if chunk:
        yield chunk
