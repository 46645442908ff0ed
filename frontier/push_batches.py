"""Pushed URLs in parts of a size that is good for the server and for the event loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from frontier.entries import Entry, PushMode

PUSH_CHUNK = 500
"""URLs a push call: Lua's unpack() takes up to about 8,000 values, and a call of this size runs for about 1 ms."""

PUSH_BATCH = 500
"""URLs a round trip, or a little more: to pack so many takes 3 ms, during which nothing else happens here."""

Group = tuple[str, PushMode]
"""A domain, and how its URLs are pushed."""

Chunk = tuple[int, dict[Group, list[Entry]]]
"""What one call pushes: a shard, and the entries by group."""


def batches(chunks: Sequence[Chunk]) -> Iterable[list[Chunk]]:
    """`chunks` in parts of about `PUSH_BATCH` entries."""
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
    """`groups` cut into parts of at most `size` entries."""
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
