"""Paths of robots.txt rules that contain `*`: which of them match a URL. Pure.

The time of a search is bounded for any file and any URL (see `robots_rules`). Patterns are tried from the most specific one
with `str.find`, without backtracking. If there are too many of them for that, an index excludes those whose longest part
does not begin and end as some part of the URL does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from typing import Final, Generic, TypeVar, cast

import msgspec

from politeness.robots_syntax import (
    SLICE,
    Excerpt,
    Rule,
    UsageRule,
    comparable,
    comparable_rule,
    cut_body,
    extract,
    readable,
)
from politeness.usage import Statement, answers_in, decisive, quoted

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


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Whether a URL may be fetched, and why.

    `line`: number of the deciding line, from 1; `rule`: its field and value; both are None if no rule matched. `group`:
    name of the group that applies: the product token, `*`, or None if no group applies.
    """

    allowed: bool
    line: int | None
    rule: str | None
    group: str | None


IMPLICIT: Final = Decision(allowed=True, line=None, rule=None, group=None)
"""The decision for /robots.txt itself (RFC 9309 2.2.2), and for all URLs if no group applies (2.2.1)."""


class _Rule(msgspec.Struct, frozen=True, gc=False):
    """A rule without `*`, looked up by its path. The highest `rank` wins: twice the number of bytes, plus 1 for Allow."""

    rank: int
    decision: Decision


class Rules:
    """What one robots.txt says to one product token. For the attributes, see `Excerpt`. `usage`: its Content-Usage rules,
    None if there are none."""

    __slots__ = (
        "__weakref__",
        "_default",
        "_exact",
        "_lengths",
        "_patterns",
        "_prefixes",
        "crawl_delay",
        "group",
        "licenses",
        "request_rate",
        "sitemaps",
        "usage",
    )

    def __init__(self, excerpt: Excerpt) -> None:
        """Use `build`, which adds the rules."""
        self.group = excerpt.group
        self.crawl_delay = excerpt.crawl_delay
        self.request_rate = excerpt.request_rate
        self.sitemaps = excerpt.sitemaps
        self.licenses = excerpt.licenses
        self._default = Decision(True, None, None, self.group) if self.group else IMPLICIT
        self._exact: dict[str, _Rule] = {}
        self._prefixes: dict[str, _Rule] = {}
        self._lengths: tuple[int, ...] = ()
        self._patterns = Patterns[Decision]()
        self.usage: UsageRules | None = None

    @classmethod
    def parse(cls, body: bytes, product_token: str) -> Rules:
        """The rules in `body` for the crawler that calls itself `product_token`. Accepts any bytes."""
        return finish(cls.build(finish(extract(cut_body(body), product_token))))

    @classmethod
    def build(cls, excerpt: Excerpt) -> Generator[None, None, Rules]:
        """The rules in `excerpt`. The generator returns them, and yields after every few milliseconds of work."""
        rules = cls(excerpt)
        for number, rule in enumerate(excerpt.rules):
            if number and number % SLICE == 0:
                yield
            rules._add(rule)
        rules._lengths = tuple(sorted({len(path) for path in rules._prefixes}, reverse=True))
        yield from rules._patterns.build()
        rules.usage = (yield from UsageRules.build(excerpt.usage)) if excerpt.usage else None
        return rules

    def _add(self, rule: Rule) -> None:
        path = rule.comparable
        text = f"{'Allow' if rule.is_allow else 'Disallow'}: {readable(rule.path)}"
        ranked = _Rule(2 * len(path) + rule.is_allow, Decision(rule.is_allow, rule.line, text, self.group))
        if "*" in path:
            self._patterns.add(Pattern.of(path, ranked.rank, rule.line, ranked.decision))
        elif path.endswith("$"):
            self._exact[path[:-1]] = ranked
        else:
            self._prefixes[path] = ranked

    def decide(self, url: str) -> Decision:
        """Decide whether `url` may be fetched: an absolute URL, or its path and query, beginning with `/`.

        The matching rule with the most bytes decides; of two with the same number, Allow (RFC 9309 2.2.2). Without a match,
        the URL is allowed.
        """
        path = comparable(url)
        if path == "/robots.txt":
            return IMPLICIT
        # An anchored rule that equals the path has one byte more (its `$`) than any prefix of the path.
        best = self._exact.get(path)
        for length in self._lengths if best is None else ():
            if (best := self._prefixes.get(path[:length])) is not None:
                break
        if self._patterns and (pattern := self._best_pattern(path, best.rank if best is not None else 0)) is not None:
            return pattern.value
        return best.decision if best is not None else self._default

    def _best_pattern(self, path: str, above: int) -> Pattern[Decision] | None:
        """The most specific matching pattern with a rank greater than `above`, that of the best other rule."""
        try:
            return self._patterns.best(path, above)
        except OverflowError:
            strictest = next((pattern for pattern in self._patterns if not pattern.value.allowed), None)
            return strictest if strictest is not None and strictest.rank > above else None

    def __len__(self) -> int:
        """The number of rules: a measure of memory."""
        own = len(self._exact) + len(self._prefixes) + len(self._patterns)
        return own + len(self.usage) if self.usage is not None else own

    def __repr__(self) -> str:
        return f"<Rules group={self.group} rules={len(self)} crawl_delay={self.crawl_delay}>"


def finish(work: Generator[None, None, T]) -> T:
    """Run `work` to its end without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return cast(T, finished.value)


Statements = tuple[Statement, ...]


def divided(value: bytes) -> tuple[bytes, bytes]:
    """The path in the `value` of a line, empty without one, and the serialized statement (3.2)."""
    if not value.startswith(b"/"):
        return b"", value
    path, *rest = value.replace(b"\t", b" ").split(b" ", 1)
    return path, rest[0].strip(b" ") if rest else b""


class UsageRules:
    """The Content-Usage rules of one robots.txt for one crawler."""

    __slots__ = ("_exact", "_lengths", "_patterns", "_prefixes", "_strictest")

    def __init__(self) -> None:
        """Use `build`, which adds the rules."""
        self._exact: dict[str, Statements] = {}
        self._prefixes: dict[str, Statements] = {}
        self._lengths: tuple[int, ...] = ()
        self._patterns = Patterns[Statements]()
        self._strictest: Statements | None = None

    @classmethod
    def build(cls, lines: Sequence[UsageRule]) -> Generator[None, None, UsageRules]:
        """The rules in `lines`. The generator returns them, and yields after every few milliseconds of work."""
        rules = cls()
        by_path: dict[str, tuple[int, list[Statement]]] = {}
        for number, line in enumerate(lines):
            if number and number % SLICE == 0:
                yield
            path, value = divided(line.value)
            text = quoted(f"robots.txt line {line.line}", f"Content-Usage: {readable(line.value)}")
            known = by_path.setdefault(comparable_rule(path), (line.line, []))
            known[1].append(Statement(text, answers_in(value)))
        for number, (path_form, (first, statements)) in enumerate(by_path.items()):
            if number and number % SLICE == 0:
                yield
            deciding = decisive(statements)  # a file may have thousands of lines with one path
            if "*" in path_form:
                rules._patterns.add(Pattern.of(path_form, len(path_form), first, deciding))
            elif path_form.endswith("$"):
                rules._exact[path_form[:-1]] = deciding
            else:
                rules._prefixes[path_form] = deciding
        rules._lengths = tuple(sorted(map(len, rules._prefixes), reverse=True))
        yield from rules._patterns.build()
        return rules

    def stated(self, url: str) -> Statements:
        """The statements about `url`: an absolute URL, or its path and query, beginning with `/`. Empty if none applies."""
        path = comparable(url)
        # An anchored rule that equals the path has one byte more (its `$`) than any prefix of the path.
        found, rank = self._exact.get(path), len(path) + 1
        if found is None:
            prefix = next((path[:length] for length in self._lengths if path[:length] in self._prefixes), None)
            found, rank = ((), -1) if prefix is None else (self._prefixes[prefix], len(prefix))
        if not len(self._patterns):
            return found
        try:
            best = self._patterns.best(path, rank - 1)
            if best is None:
                return found
            tied = [] if best.rank > rank else [*found]
            for pattern in self._patterns.ties(best, path):
                tied += pattern.value
            return decisive(tied)
        except OverflowError:
            return self._most_restrictive(found)

    def _most_restrictive(self, found: Statements) -> Statements:
        """What to assume if a search takes too much work, which takes a file and a URL that were made for each other."""
        if self._strictest is None:
            self._strictest = decisive([one for pattern in self._patterns for one in pattern.value])
        return decisive([*found, *self._strictest])

    def __len__(self) -> int:
        """The number of paths: a measure of memory."""
        return len(self._exact) + len(self._prefixes) + len(self._patterns)

    def __repr__(self) -> str:
        return f"<UsageRules paths={len(self)}>"
