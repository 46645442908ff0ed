"""May this URL be fetched? The rules of one robots.txt for one crawler, by RFC 9309. Pure.

`robots_excerpt` extracts what the file says to one product token, and `Rules` decides about URLs. Each `Decision` is
created while the rules are built and names the deciding line, so that giving the reason costs nothing.

The time of a decision is bounded for any file and any URL: less than 5 ms for 512 KiB of rules and a URL of 2 KB. Plain
paths, nearly all rules, are in a dict and are looked up by each length that occurs. Paths with `*` are tried from the most
specific one with `str.find`, without backtracking. If there are too many of them for that, an index excludes those whose
longest part does not begin and end as some part of the URL does. If too many are left even so, which takes a file and a
URL that were made for each other, the most specific Disallow with a `*` counts as a match.

Protego is not used for matching, because it differs from the RFC in ways that a caller cannot correct.
`docs/reference/robots.md` lists them. A test compares the two on files where they must agree.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar, cast

import msgspec

from politeness.robots_excerpt import SLICE, Excerpt, Rule, extract
from politeness.robots_syntax import comparable, cut_body, readable

T = TypeVar("T")


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


class _Pattern(msgspec.Struct, frozen=True, gc=False):
    """A rule whose path contains `*`. A path matches if it begins with `head`, contains the parts of `middle` in this
    order, and, if `anchored`, ends with `tail`.

    `needle`: the longest of these parts. To search for it first excludes most patterns in one step. `size`: characters
    of the whole path.
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
            # The leftmost match leaves the most characters for the parts that follow, so no other match needs a try.
            found = path.find(part, position)
            if found < 0:
                return False
            position = found + len(part)
        return not self.anchored or (len(path) - len(self.tail) >= position and path.endswith(self.tail))


def _order(pattern: _Pattern) -> tuple[int, int]:
    """Sort key: the most specific pattern first; among those of equal length, the first in the file."""
    return -pattern.rank, pattern.decision.line or 0


_PLAIN_WORK: Final = 1_000_000
"""Characters of all patterns times characters of the URL. Up to this product, all patterns are tried: 0.6 ms at worst."""

_MOST_WORK: Final = 10_000_000
"""The limit of the same product for the patterns that the index leaves: 3 ms at worst, where a URL nearly contains the
parts in many places, or where 6,000 patterns share their longest part with a URL of 70 characters."""

_PATTERN_WORK: Final = 500
"""Work that is counted for a pattern in addition, whatever its length."""

_INDEXED_FROM: Final = _PLAIN_WORK // 2_048
"""Characters of all patterns from which an index is built. With fewer, no URL that can be crawled needs it."""


class _Index:
    """Patterns by what a URL must contain to match: the first and last n characters of the needle, where n is the greatest
    power of two up to its length, so that the two cover it. All pieces of n characters of the URL are looked up at once."""

    __slots__ = ("_by_length",)

    def __init__(self) -> None:
        self._by_length: dict[int, dict[str, list[_Pattern]]] = {}

    def add(self, pattern: _Pattern) -> None:
        length = _power_of_two(len(pattern.needle))
        self._by_length.setdefault(length, {}).setdefault(pattern.needle[:length], []).append(pattern)

    def best(self, path: str, above: int) -> _Pattern | None:
        """The most specific match with a rank greater than `above`. Raises OverflowError if this takes too much work."""
        best: _Pattern | None = None
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


def _power_of_two(length: int) -> int:
    """The greatest power of two up to `length`; 0 for 0."""
    return 1 << length.bit_length() - 1 if length else 0


class Rules:
    """What one robots.txt says to one product token. For the attributes, see `Excerpt`."""

    __slots__ = (
        "__weakref__",
        "_default",
        "_exact",
        "_index",
        "_lengths",
        "_pattern_size",
        "_patterns",
        "_prefixes",
        "crawl_delay",
        "group",
        "request_rate",
        "sitemaps",
    )

    def __init__(self, excerpt: Excerpt) -> None:
        """Use `build`, which adds the rules."""
        self.group = excerpt.group
        self.crawl_delay = excerpt.crawl_delay
        self.request_rate = excerpt.request_rate
        self.sitemaps = excerpt.sitemaps
        self._default = Decision(True, None, None, self.group) if self.group else IMPLICIT
        self._exact: dict[str, _Rule] = {}
        self._prefixes: dict[str, _Rule] = {}
        self._lengths: tuple[int, ...] = ()
        self._patterns: list[_Pattern] = []
        self._pattern_size = 0  # characters in all patterns
        self._index = _Index()

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
        rules._patterns.sort(key=_order)
        if rules._pattern_size > _INDEXED_FROM:
            for number, pattern in enumerate(rules._patterns):
                if number and number % SLICE == 0:
                    yield
                rules._index.add(pattern)
        return rules

    def _add(self, rule: Rule) -> None:
        path = rule.comparable
        text = f"{'Allow' if rule.is_allow else 'Disallow'}: {readable(rule.path)}"
        ranked = _Rule(2 * len(path) + rule.is_allow, Decision(rule.is_allow, rule.line, text, self.group))
        anchored = path.endswith("$")
        plain = path[:-1] if anchored else path
        if "*" in plain:
            self._patterns.append(_pattern(plain, anchored, ranked))
            self._pattern_size += len(plain)
        else:
            (self._exact if anchored else self._prefixes)[plain] = ranked

    def decide(self, url: str) -> Decision:
        """Decide whether `url` may be fetched: an absolute URL, or its path and query, beginning with `/`.

        The matching rule with the most bytes decides; of two with the same number, Allow (RFC 9309 2.2.2). Without a match,
        the URL is allowed.
        """
        path = comparable(url)
        if path == "/robots.txt":
            return IMPLICIT
        # An anchored rule that equals the path has one byte more (its `$`) than any prefix of the path.
        longest = next((rule for length in self._lengths if (rule := self._prefixes.get(path[:length]))), None)
        best = self._exact.get(path) or longest
        pattern = self._best_pattern(path, best.rank if best is not None else 0)
        if pattern is not None:
            return pattern.decision
        return best.decision if best is not None else self._default

    def _best_pattern(self, path: str, above: int) -> _Pattern | None:
        """The most specific matching pattern with a rank greater than `above`, that of the best other rule."""
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

    def __len__(self) -> int:
        """The number of rules: a measure of memory."""
        return len(self._exact) + len(self._prefixes) + len(self._patterns)

    def __repr__(self) -> str:
        return f"<Rules group={self.group} rules={len(self)} crawl_delay={self.crawl_delay}>"


def _pattern(path: str, anchored: bool, rule: _Rule) -> _Pattern:
    head, *parts = path.split("*")
    tail = parts.pop() if anchored else ""
    middle = tuple(part for part in parts if part)
    # The head is last, because among parts of equal length it excludes the least: all paths begin with `/`.
    needle = max((*middle, tail, head), key=len)
    return _Pattern(rule.rank, len(path), needle, head, middle, tail, anchored, rule.decision)


def finish(work: Generator[None, None, T]) -> T:
    """Run `work` to its end without a pause, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as finished:
            return cast(T, finished.value)
