"""May this URL be fetched? The rules of one robots.txt for one crawler, by RFC 9309. Pure.

`robots_excerpt` extracts what the file says to one product token, and `Rules` decides about URLs. Each `Decision` is
created while the rules are built and names the deciding line, so that giving the reason costs nothing.

The time of a decision is bounded for any file and any URL: less than 5 ms for 512 KiB of rules and a URL of 2 KB. Plain
paths, nearly all rules, are in a dict and are looked up by each length that occurs. Paths with `*` are in `Patterns`. If
too many of them would have to be tried, which takes a file and a URL that were made for each other, the most specific
Disallow with a `*` counts as a match.

Protego is not used for matching, because it differs from the RFC in ways that a caller cannot correct.
`docs/reference/robots.md` lists them. A test compares the two on files where they must agree.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar, cast

import msgspec

from politeness.content_usage import UsageRules
from politeness.robots_excerpt import SLICE, Excerpt, Rule, extract
from politeness.robots_patterns import Pattern, Patterns
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
