"""Paths of robots.txt rules that contain `*`: which of them match a URL. Pure.

The time of a search is bounded for any file and any URL (see `robots_rules`). Patterns are tried from the most specific one
with `str.find`, without backtracking. If there are too many of them for that, an index excludes those whose longest part
does not begin and end as some part of the URL does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator
from typing import Final, Generic, TypeVar

import msgspec

from politeness.robots_excerpt import SLICE

T = TypeVar("T")


class Pattern(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """A rule whose path contains `*`. A path matches if it begins with `head`, contains the parts of `middle` in this
    order, and, if `anchored`, ends with `tail`.

    `rank`: the greatest one wins. `line`: its number in the file. `size`: characters of the whole path. `needle`: the
    longest of its parts. To search for it first excludes most patterns in one step. `value`: what the rule says.
    """

    rank: int
    line: int
    size: int
    needle: str
    head: str
    middle: tuple[str, ...]
    tail: str
    anchored: bool
    value: T

    @classmethod
    def of(cls, path: str, rank: int, line: int, value: T) -> Pattern[T]:
        """The pattern of the comparable `path`, which contains a `*`, and a `$` at its end if it is anchored."""
        anchored = path.endswith("$")
        plain = path[:-1] if anchored else path
        head, *parts = plain.split("*")
        tail = parts.pop() if anchored else ""
        middle = tuple(part for part in parts if part)
        # The head is last, because among parts of equal length it excludes the least: all paths begin with `/`.
        needle = max((*middle, tail, head), key=len)
        return cls(rank, line, len(plain), needle, head, middle, tail, anchored, value)

    def matches(self, path: str) -> bool:
        if not path.startswith(self.head):
            return False
        position = len(self.head)
        for part in self.middle:
            # The leftmost match leaves the most characters for the parts that follow, so no other match needs a try.
            found = path.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        return not self.anchored or (len(path) - len(self.tail) >= position and path.endswith(self.tail))


def _order(pattern: Pattern[T]) -> tuple[int, int]:
    """Sort key: the most specific pattern first; among those of equal rank, the first in the file."""
    return -pattern.rank, pattern.line


_PLAIN_WORK: Final = 1_000_000
"""Characters of all patterns times characters of the URL. Up to this product, all patterns are tried: 0.6 ms at worst."""

_MOST_WORK: Final = 10_000_000
"""The limit of the same product for the patterns that the index leaves: 3 ms at worst, where a URL nearly contains the
parts in many places, or where 6,000 patterns share their longest part with a URL of 70 characters."""

_PATTERN_WORK: Final = 500
"""Work that is counted for a pattern in addition, whatever its length."""

_INDEXED_FROM: Final = _PLAIN_WORK // 2_048
"""Characters of all patterns from which an index is built. With fewer, no URL that can be crawled needs it."""


class Patterns(Generic[T]):
    """All patterns of one file. `add` them, then run `build`."""

    __slots__ = ("_by_length", "_patterns", "_size")

    def __init__(self) -> None:
        self._patterns: list[Pattern[T]] = []
        self._size = 0  # characters in all patterns
        # The index: patterns by the first and last n characters of the needle, where n is the greatest power of two up to
        # its length, so that the two cover it. All pieces of n characters of the URL are looked up at once.
        self._by_length: dict[int, dict[str, list[Pattern[T]]]] = {}

    def add(self, pattern: Pattern[T]) -> None:
        self._patterns.append(pattern)
        self._size += pattern.size

    def build(self) -> Generator[None, None, None]:
        """Sort and index the patterns. Yields after every few milliseconds of work."""
        self._patterns.sort(key=_order)
        if self._size <= _INDEXED_FROM:
            return
        for number, pattern in enumerate(self._patterns):
            if number and number % SLICE == 0:
                yield
            length = _power_of_two(len(pattern.needle))
            self._by_length.setdefault(length, {}).setdefault(pattern.needle[:length], []).append(pattern)

    def __len__(self) -> int:
        return len(self._patterns)

    def __iter__(self) -> Iterator[Pattern[T]]:
        """The patterns, the most specific first."""
        return iter(self._patterns)

    def best(self, path: str, above: int) -> Pattern[T] | None:
        """The most specific match with a rank greater than `above`. Raises OverflowError if this takes too much work."""
        if self._size * len(path) > _PLAIN_WORK:
            return self._best_indexed(path, above)
        for pattern in self._patterns:
            if pattern.rank <= above:
                break
            if pattern.needle in path and pattern.matches(path):
                return pattern
        return None

    def ties(self, pattern: Pattern[T], path: str) -> list[Pattern[T]]:
        """`pattern`, which matches `path`, and all other matches of its rank. Raises OverflowError if this takes too much
        work."""
        first, end = (bisect(self._patterns, -pattern.rank, key=_falling) for bisect in (bisect_left, bisect_right))
        if (end - first) * (pattern.size * len(path) + _PATTERN_WORK) > _MOST_WORK:
            raise OverflowError
        return [other for other in self._patterns[first:end] if other.matches(path)]

    def _best_indexed(self, path: str, above: int) -> Pattern[T] | None:
        best: Pattern[T] | None = None
        work = 0
        for length, patterns in self._by_length.items():
            pieces = {path[at : at + length] for at in range(len(path) - length + 1)}
            for piece in patterns.keys() & pieces:
                for pattern in patterns[piece]:
                    if pattern.rank <= above or pattern.needle[len(pattern.needle) - length :] not in pieces:
                        continue
                    work += pattern.size * len(path) + _PATTERN_WORK
                    if work > _MOST_WORK:
                        raise OverflowError
                    if (best is None or _order(pattern) < _order(best)) and pattern.matches(path):
                        best = pattern
        return best


def _falling(pattern: Pattern[T]) -> int:
    return -pattern.rank


def _power_of_two(length: int) -> int:
    """The greatest power of two up to `length`; 0 for 0."""
    return 1 << length.bit_length() - 1 if length else 0
