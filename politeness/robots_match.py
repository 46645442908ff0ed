"""Decides about URLs by the rules of one robots.txt for one crawler: may a URL be fetched (RFC 9309), and what does
its owner say about its use (Content-Usage)? Pure.

Each `Decision` is created while the rules are built and names the deciding line, so that giving the reason costs nothing.

The time of a decision is bounded for any file and any URL: some 15 ms for 512 KiB of rules and a URL of 2 KB. Plain paths,
nearly all rules, are in a dict and are looked up by each length that occurs. Paths with `*` are tried from the most
specific one with `str.find`, without backtracking. If they are too many for that, such as 3,000 for a URL of 300
characters, the strictest one counts as a match.

Protego does not match paths here: it meets fewer of the requirements of the RFC, and names no line
(docs/decisions/0010-own-robots-matching.md).
A test compares the two on files where they must agree.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import Final, Generic, TypeVar, cast

import msgspec

from politeness.robots_syntax import (
    SLICE,
    Excerpt,
    UsageRule,
    comparable,
    comparable_rule,
    cut_body,
    extract,
    readable,
)
from politeness.usage import Statement, answers_in, decisive, quoted, signals_in

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


_MOST_WORK: Final = 30_000_000
"""Characters of all patterns times characters of the URL, up to which they are tried: 15 ms at worst, where a URL nearly
contains the parts in many places."""


class Patterns(Generic[T]):
    """All patterns of one file. `add` them, then call `sort`."""

    __slots__ = ("_patterns", "_size")

    def __init__(self) -> None:
        self._patterns: list[Pattern[T]] = []
        self._size = 0  # characters in all patterns

    def add(self, pattern: Pattern[T]) -> None:
        self._patterns.append(pattern)
        self._size += pattern.size

    def sort(self) -> None:
        self._patterns.sort(key=lambda pattern: (-pattern.rank, pattern.line))

    def __len__(self) -> int:
        return len(self._patterns)

    def __iter__(self) -> Iterator[Pattern[T]]:
        """The patterns, the most specific first; among those of equal rank, the first in the file."""
        return iter(self._patterns)

    def best(self, path: str, above: int) -> Pattern[T] | None:
        """The most specific match with a rank greater than `above`. Raises OverflowError if this takes too much work."""
        if self._size * len(path) > _MOST_WORK:
            raise OverflowError
        for pattern in self._patterns:
            if pattern.rank <= above:
                break
            if pattern.needle in path and pattern.matches(path):
                return pattern
        return None

    def ties(self, pattern: Pattern[T], path: str) -> list[Pattern[T]]:
        """`pattern`, a match, and all other matches of its rank."""
        first, end = (
            bisect(self._patterns, -pattern.rank, key=lambda one: -one.rank) for bisect in (bisect_left, bisect_right)
        )
        return [other for other in self._patterns[first:end] if other.matches(path)]


class _Rank(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """What a rule without `*` says. The highest `rank` wins."""

    rank: int
    value: T


class PathRules(Generic[T]):
    """The rules of one file by their comparable paths, of which no two are equal."""

    __slots__ = ("_exact", "_lengths", "_prefixes", "patterns")

    def __init__(self) -> None:
        self._exact: dict[str, _Rank[T]] = {}
        self._prefixes: dict[str, _Rank[T]] = {}
        self._lengths: list[int] = []
        self.patterns = Patterns[T]()

    def add(self, path: str, rank: int, line: int, value: T) -> None:
        """Add the rule of `line`. A longer path must have a greater `rank`."""
        if "*" in path:
            self.patterns.add(Pattern.of(path, rank, line, value))
        elif path.endswith("$"):
            self._exact[path[:-1]] = _Rank(rank, value)
        else:
            self._prefixes[path] = _Rank(rank, value)

    def sort(self) -> None:
        """Call this after the last `add`."""
        self._lengths = sorted({len(path) for path in self._prefixes}, reverse=True)
        self.patterns.sort()

    def plain(self, path: str) -> _Rank[T] | None:
        """The most specific match without a `*`."""
        # An anchored rule that equals the path has one byte more (its `$`) than any prefix of the path.
        best = self._exact.get(path)
        for length in self._lengths if best is None else ():
            if (best := self._prefixes.get(path[:length])) is not None:
                break
        return best

    def __len__(self) -> int:
        return len(self._exact) + len(self._prefixes) + len(self.patterns)


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


class Rules:
    """What one robots.txt says to one product token (`Excerpt`). `usage`: None without Content-Usage rules."""

    def __init__(self, excerpt: Excerpt) -> None:
        """Use `build`, which adds the rules."""
        self.group = excerpt.group
        self.crawl_delay = excerpt.crawl_delay
        self.request_rate = excerpt.request_rate
        self.sitemaps = excerpt.sitemaps
        self.licenses = excerpt.licenses
        self.usage: UsageRules | None = None
        self._default = Decision(True, None, None, self.group) if self.group else IMPLICIT
        self._paths = PathRules[Decision]()

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
            path = comparable_rule(rule.path)
            text = f"{'Allow' if rule.is_allow else 'Disallow'}: {readable(rule.path)}"
            decision = Decision(rule.is_allow, rule.line, text, rules.group)
            rules._paths.add(path, 2 * len(path) + rule.is_allow, rule.line, decision)
        rules._paths.sort()
        rules.usage = (yield from UsageRules.build(excerpt.usage)) if excerpt.usage else None
        return rules

    def decide(self, url: str) -> Decision:
        """Decide whether `url` may be fetched: an absolute URL, or its path and query, beginning with `/`.

        The matching rule with the most bytes decides; of two with the same number, Allow (RFC 9309 2.2.2). Without a match,
        the URL is allowed.
        """
        path = comparable(url)
        if path == "/robots.txt":
            return IMPLICIT
        best = self._paths.plain(path)
        rank, patterns = best.rank if best is not None else 0, self._paths.patterns
        if len(patterns):
            try:
                pattern = patterns.best(path, rank)
            except OverflowError:
                strictest = next((pattern for pattern in patterns if not pattern.value.allowed), None)
                pattern = strictest if strictest is not None and strictest.rank > rank else None
            if pattern is not None:
                return pattern.value
        return best.value if best is not None else self._default

    def __len__(self) -> int:
        """The number of rules: a measure of memory."""
        return len(self._paths) + (len(self.usage) if self.usage is not None else 0)

    def __repr__(self) -> str:
        return f"<Rules group={self.group} rules={len(self)} crawl_delay={self.crawl_delay}>"


Statements = tuple[Statement, ...]


class UsageRules:
    """The Content-Usage rules of one robots.txt for one crawler.

    By draft-ietf-aipref-attach-05, "Associating AI Usage Preferences with Content in HTTP" (August 2026). As with Allow and
    Disallow, the rule with the longest matching path applies; a rule without a path is shorter than all others. Several
    rules with one path apply together, and so do different paths of equal length, which the draft leaves open. Rules say
    nothing about paths that may not be crawled (3.1).
    """

    def __init__(self) -> None:
        """Use `build`, which adds the rules."""
        self._paths = PathRules[Statements]()

    @classmethod
    def build(cls, lines: Sequence[UsageRule]) -> Generator[None, None, UsageRules]:
        """The rules in `lines`. The generator returns them, and yields after every few milliseconds of work."""
        rules = cls()
        by_path: dict[str, tuple[int, list[Statement]]] = {}
        for number, line in enumerate(lines):
            if number and number % SLICE == 0:
                yield
            path, value = divided(line.value)
            name, answers = ("Content-Signal", signals_in) if line.is_signal else ("Content-Usage", answers_in)
            text = quoted(f"robots.txt line {line.line}", f"{name}: {readable(line.value)}")
            _, statements = by_path.setdefault(comparable_rule(path), (line.line, []))
            statements.append(Statement(text, answers(value)))
        for number, (path_form, (first, statements)) in enumerate(by_path.items()):
            if number and number % SLICE == 0:
                yield
            rules._paths.add(
                path_form, len(path_form), first, decisive(statements)
            )  # a path may have thousands of lines
        rules._paths.sort()
        return rules

    def stated(self, url: str) -> Statements:
        """The statements about `url`: an absolute URL, or its path and query, beginning with `/`. Empty if none applies."""
        path, patterns = comparable(url), self._paths.patterns
        plain = self._paths.plain(path)
        statements, rank = (plain.value, plain.rank) if plain is not None else ((), -1)
        if not len(patterns):
            return statements
        try:
            best = patterns.best(path, rank - 1)
            if best is None:
                return statements
            tied = [] if best.rank > rank else [*statements]
            return decisive([*tied, *(one for pattern in patterns.ties(best, path) for one in pattern.value)])
        except OverflowError:  # assume that the most restrictive statements apply
            return decisive([*statements, *self._strictest])

    @cached_property
    def _strictest(self) -> Statements:
        return decisive([one for pattern in self._paths.patterns for one in pattern.value])

    def __len__(self) -> int:
        """The number of paths: a measure of memory."""
        return len(self._paths)

    def __repr__(self) -> str:
        return f"<UsageRules paths={len(self)}>"


def divided(value: bytes) -> tuple[bytes, bytes]:
    """The path in the `value` of a Content-Usage line, empty without one, and the serialized statement (3.2)."""
    if not value.startswith(b"/"):
        return b"", value
    path, *rest = value.replace(b"\t", b" ").split(b" ", 1)
    return path, rest[0].strip(b" ") if rest else b""


def finish(work: Generator[None, None, T]) -> T:
    """Run `work` to its end without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return cast(T, finished.value)
