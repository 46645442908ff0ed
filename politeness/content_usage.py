"""Statements of preference in robots.txt and in headers of responses. Pure.

By draft-ietf-aipref-attach-05, "Associating AI Usage Preferences with Content in HTTP" (August 2026). A Content-Usage line
of robots.txt is a rule of its group. As with Allow and Disallow, the rule with the longest matching path applies; a rule
without a path is shorter than all others. Several rules with one path apply together, and so do different paths of equal
length, which the draft leaves open. Rules say nothing about paths that may not be crawled (3.1).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from politeness.robots_excerpt import SLICE, UsageRule
from politeness.robots_patterns import Pattern, Patterns
from politeness.robots_syntax import comparable, comparable_rule, readable
from politeness.usage_preferences import Statement, answers_in, decisive, quoted, statement

HEADER: Final = b"content-usage"

Statements = tuple[Statement, ...]


def header_statement(value: bytes) -> Statement:
    """The statement in the header field with this `value`; that of several lines is their list (RFC 9651 4.2)."""
    return statement("header Content-Usage", value)


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
