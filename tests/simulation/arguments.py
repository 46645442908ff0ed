"""Reads what the referee needs from the keys and arguments of the frontier's scripts."""

from __future__ import annotations

from collections.abc import Iterator

from frontier.entries import parse_entry


def shard_tag(key: str) -> str:
    """The hash tag of a shard's key, as `Domain.shard` has it."""
    return key[: key.index("}") + 1]


def shard_number(tag: str) -> int:
    """The number of the shard with this hash tag."""
    return int(tag[1:-1].rpartition(":")[2].partition("@")[0])


def bytes_of(word: object) -> bytes:
    """An argument as Redis has got it."""
    return word if isinstance(word, bytes) else str(word).encode()


def linked_url(member: str) -> str:
    """The URL of a link in an outbox."""
    _, domain, _, raw = member.split("\n")
    return parse_entry(raw, domain, 0.0).url


def each_end(ends: list[str]) -> Iterator[tuple[str, str, str]]:
    """Outcome, what shall come again, and entry of each URL whose end `settle` is told."""
    at = 0
    while at < len(ends):
        last = at + 4 + int(ends[at + 3])
        yield from ((ends[at], ends[at + 2], raw) for raw in ends[at + 4 : last])
        at = last
