"""May this URL be fetched? The rules of one robots.txt for one crawler: RFC 9309, all of it. Pure.

`robots_text` cuts the bytes into records and keeps what concerns one product token, and nothing of the other groups;
`Rules` answers for URLs. An answer is an object that was made when the file was parsed and names the line that decided,
so telling why costs nothing.

Time is bounded by construction, for any file and any URL: less than 5 ms for 512 KiB of rules and a URL of 2 KB. Plain
paths, nearly all rules, lie in a dict and are looked up by each length that occurs. Paths with `*` are walked from the
most specific one with `str.find`, without backtracking. Where there are too many of them for that, an index turns down
those of which the URL does not hold both ends of the longest part; if too many are left even so, which takes a file and a
URL made for each other, the most specific Disallow with a `*` counts as a match.

Protego reads the two fields that no standard defines, Crawl-delay and Request-rate. It does not decide matches, because
its answers differ from the RFC's in ways that cannot be put right from outside; `docs/reference/robots.md` lists them.
A test compares the two on files where they must agree.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Final, cast

import msgspec
from protego import Protego, RequestRate

from politeness.robots_text import (
    MAX_BODY,
    GroupReader,
    Section,
    comparable,
    comparable_rule,
    cut_body,
    lines_of,
    readable,
    records,
)

SLICE: Final = 1_000
"""Lines read, or rules taken up, between two moments at which others get their turn: 1 to 3 ms."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """An answer and its reason.

    `line` is the number of the deciding line, from 1, and `rule` that line's field and value; both are None when no rule
    matched. `group` is the name of the group that was obeyed: the product token, `*`, or None when no group applies.
    """

    allowed: bool
    line: int | None
    rule: str | None
    group: str | None


IMPLICIT: Final = Decision(allowed=True, line=None, rule=None, group=None)
"""The answer for /robots.txt itself (RFC 9309 2.2.2) and for all URLs where no group applies (2.2.1)."""


class _Rule(msgspec.Struct, frozen=True, gc=False):
    """A path that must match, and what follows from it. The greater `rank` wins: 2 x bytes, 1 more for Allow."""

    rank: int
    decision: Decision


class _Pattern(msgspec.Struct, frozen=True, gc=False):
    """A rule whose path holds `*`: it begins with `head`, holds `middle` in this order, and ends with `tail`.

    `needle` is the longest of these parts. Looking for it first turns most patterns down in one step. `size`: characters of
    the whole path.
    """

    rank: int
    size: int
    needle: str
    head: str
    middle: tuple[str, ...]
    tail: str
    anchored: bool
    decision: Decision

    def matches(self, path: str) -> bool:
        if not path.startswith(self.head):
            return False
        position = len(self.head)
        for part in self.middle:
            # The leftmost place leaves the most room for the parts that follow, so nothing is ever tried twice.
            found = path.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        return not self.anchored or (len(path) - len(self.tail) >= position and path.endswith(self.tail))


def _order(pattern: _Pattern) -> tuple[int, int]:
    """The most specific first; of those equally long the first in the file."""
    return -pattern.rank, pattern.decision.line or 0


_PLAIN_WORK: Final = 1_000_000
"""Characters of patterns times characters of the URL, up to which patterns are simply tried one after the other: at worst,
by 0.6 ns each, 0.6 ms."""

_MOST_WORK: Final = 10_000_000
"""The same for what the index leaves. It is worst at 3 ms: parts that a URL nearly holds in many places, or 6,000 patterns
with the same longest part, which a URL of 70 characters holds. Files in use leave some patterns to a URL."""

_EACH: Final = 500
"""Work that a pattern is besides, however short."""

_INDEXED_FROM: Final = _PLAIN_WORK // 2_048
"""Characters of patterns from which there is an index: with fewer no URL that can be crawled asks for it."""


class _Index:
    """Patterns by what a URL must hold to match: both ends of the needle, as long as the greatest power of two in it, so
    that together they cover it. The URL's own pieces of so many characters are looked up at once, for all patterns."""

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        self._by_length: dict[int, dict[str, list[_Pattern]]] = {}

    def add(self, patterns: Iterable[_Pattern]) -> None:
        for pattern in patterns:
            length = _power_of_two(len(pattern.needle))
            self._by_length.setdefault(length, {}).setdefault(pattern.needle[:length], []).append(pattern)

    def best(self, path: str, above: int) -> _Pattern | None:
        """The most specific match whose rank is `above` that. Raises OverflowError if that is too much work."""
        best: _Pattern | None = None
        work = 0
        for length, patterns in self._by_length.items():
            pieces = {path[at : at + length] for at in range(len(path) - length + 1)}
            for piece in patterns.keys() & pieces:
                for pattern in patterns[piece]:
                    if pattern.rank <= above or pattern.needle[len(pattern.needle) - length :] not in pieces:
                        continue
                    work += pattern.size * len(path) + _EACH
                    if work > _MOST_WORK:
                        raise OverflowError
                    if (best is None or _order(pattern) < _order(best)) and pattern.matches(path):
                        best = pattern
        return best


def _power_of_two(length: int) -> int:
    """The greatest that is not above `length`; 0 for 0."""
    return 1 << length.bit_length() - 1 if length else 0


class _Matchers:
    """Rules by how they are looked up."""

    __slots__ = ("exact", "index", "patterns", "prefixes", "size")

    def __init__(self) -> None:
        self.exact: dict[str, _Rule] = {}
        self.prefixes: dict[str, _Rule] = {}
        self.patterns: list[_Pattern] = []
        self.index = _Index()
        self.size = 0  # characters of the patterns

    def add(self, rules: Iterable[tuple[str, _Rule]]) -> None:
        for path, rule in rules:
            plain, anchored = (path[:-1], True) if path.endswith("$") else (path, False)
            if "*" in plain:
                pattern = _pattern(plain, anchored, rule)
                self.patterns.append(pattern)
                self.size += pattern.size
            else:
                (self.exact if anchored else self.prefixes)[plain] = rule


class Rules:
    """What one robots.txt says to one product token.

    `crawl_delay`: the longest Crawl-delay of the group in seconds, or None. `request_rate`: seconds per request by the
    slowest Request-rate of the group, times of day ignored, or None. `sitemaps`: the Sitemap URLs as written, of all
    groups. `dropped_bytes`: how much of the body lay beyond the limit.
    """

    __slots__ = (
        "_default",
        "_exact",
        "_index",
        "_lengths",
        "_pattern_size",
        "_patterns",
        "_prefixes",
        "crawl_delay",
        "dropped_bytes",
        "group",
        "request_rate",
        "sitemaps",
    )

    def __init__(self, reader: GroupReader, matchers: _Matchers, dropped_bytes: int) -> None:
        section = reader.section()
        self.group = section.name if section else None
        self.crawl_delay = _longest_delay(section.delays) if section else None
        self.request_rate = _slowest_rate(section.rates) if section else None
        self.sitemaps = tuple(dict.fromkeys(reader.sitemaps))
        self.dropped_bytes = dropped_bytes
        self._default = Decision(True, None, None, self.group) if self.group else IMPLICIT
        self._exact, self._prefixes = matchers.exact, matchers.prefixes
        self._lengths = tuple(sorted({len(path) for path in self._prefixes}, reverse=True))
        self._patterns = tuple(sorted(matchers.patterns, key=_order))
        self._pattern_size = matchers.size
        self._index = matchers.index

    @classmethod
    def parse(cls, body: bytes, product_token: str, max_bytes: int = MAX_BODY) -> Rules:
        """The rules in `body` for the crawler that calls itself `product_token` (see `is_product_token`).

        Any bytes will do; what cannot be read is skipped, as RFC 9309 2.5 asks.
        """
        parsing = cls.parse_cooperatively(body, product_token, max_bytes)
        while True:
            try:
                next(parsing)
            except StopIteration as parsed:
                return cast(Rules, parsed.value)

    @classmethod
    def parse_cooperatively(
        cls, body: bytes, product_token: str, max_bytes: int = MAX_BODY
    ) -> Generator[None, None, Rules]:
        """As `parse`, which the generator returns. It yields after some milliseconds of work: 500 KiB of short lines took
        80 to 360 ms in all on a slow machine."""
        kept = cut_body(body, max_bytes)
        reader = GroupReader(product_token)
        lines = lines_of(kept)
        for at in range(0, len(lines), SLICE):
            if at:
                yield
            for line, field, value in records(lines[at : at + SLICE], at + 1):
                reader.take(line, field, value)
        rules: dict[str, _Rule] = {}
        section = reader.section()
        if section is not None:
            for at in range(0, len(section.rules), SLICE):
                if at:
                    yield
                _add_rules(rules, section, at)
        matchers, left = _Matchers(), list(rules.items())
        for at in range(0, len(left), SLICE):
            if at:
                yield
            matchers.add(left[at : at + SLICE])
        patterns = matchers.patterns if matchers.size > _INDEXED_FROM else []
        for at in range(0, len(patterns), SLICE):
            if at:
                yield
            matchers.index.add(patterns[at : at + SLICE])
        return cls(reader, matchers, len(body) - len(kept))

    def decide(self, url: str) -> Decision:
        """Whether `url` may be fetched: an absolute URL, or its path and query, beginning with `/`.

        The most specific match decides, that is the rule with the most bytes; of two equally long ones Allow
        (RFC 9309 2.2.2). Without a match the URL is allowed.
        """
        path = comparable(url)
        if path == "/robots.txt":
            return IMPLICIT
        # An anchored rule on the very path has one byte more (its `$`) than any prefix of that path can have.
        best = self._exact.get(path) or self._longest_prefix(path)
        pattern = self._best_pattern(path, best.rank if best is not None else 0)
        if pattern is not None:
            return pattern.decision
        return best.decision if best is not None else self._default

    def _best_pattern(self, path: str, above: int) -> _Pattern | None:
        """The pattern to obey: the most specific match, if its rank is `above` that of the best other rule."""
        if self._pattern_size * len(path) > _PLAIN_WORK:
            try:
                return self._index.best(path, above)
            except OverflowError:
                denials = (pattern for pattern in self._patterns if not pattern.decision.allowed)
                strictest = next(denials, None)
                return strictest if strictest is not None and strictest.rank > above else None
        for pattern in self._patterns:
            if pattern.rank <= above:
                break
            if pattern.needle in path and pattern.matches(path):
                return pattern
        return None

    def _longest_prefix(self, path: str) -> _Rule | None:
        for length in self._lengths:
            rule = self._prefixes.get(path[:length])
            if rule is not None:
                return rule
        return None

    def __len__(self) -> int:
        """The number of rules kept: a measure of memory."""
        return len(self._exact) + len(self._prefixes) + len(self._patterns)

    def __repr__(self) -> str:
        return f"<Rules group={self.group} rules={len(self)} crawl_delay={self.crawl_delay}>"


def _add_rules(rules: dict[str, _Rule], section: Section, at: int) -> None:
    """Add `SLICE` rules of `section` from `at` on to `rules`, by their paths in the form of comparison, a final `$` kept:
    of equal paths Allow, then the first."""
    for line, field, value in section.rules[at : at + SLICE]:
        anchored = value.endswith(b"$")
        path = comparable_rule(value[:-1] if anchored else value) + ("$" if anchored else "")
        rank = 2 * len(path) + (field == "allow")
        known = rules.get(path)
        if known is None or known.rank < rank:
            rule = f"{field.capitalize()}: {readable(value)}"
            rules[path] = _Rule(rank, Decision(field == "allow", line, rule, section.name))


def _pattern(path: str, anchored: bool, rule: _Rule) -> _Pattern:
    head, *parts = path.split("*")
    tail = parts.pop() if anchored else ""
    middle = tuple(part for part in parts if part)
    needle = max(
        (*middle, tail, head), key=len
    )  # of equally long ones not the head, which often is the `/` of all paths
    return _Pattern(rule.rank, len(path), needle, head, middle, tail, anchored, rule.decision)


def _longest_delay(values: Iterable[str]) -> float | None:
    """The greatest of the Crawl-delay values that are numbers, in seconds."""
    delays = (Protego.parse(f"User-agent: *\nCrawl-delay: {value}").crawl_delay("*") for value in values)
    return max((delay for delay in delays if delay is not None), default=None)


def _slowest_rate(values: Iterable[str]) -> float | None:
    """The greatest seconds per request among the Request-rate values.

    A rate for some hours of the day is kept all day: that errs towards patience and needs no time zone.
    """
    rates = (Protego.parse(f"User-agent: *\nRequest-rate: {value}").request_rate("*") for value in values)
    return max((_seconds_a_request(rate) for rate in rates if rate is not None), default=None)


def _seconds_a_request(rate: RequestRate) -> float:
    try:
        return rate.seconds / rate.requests
    except OverflowError:  # Protego reads numbers of any length
        return float("inf") if rate.seconds > rate.requests else 0.0
