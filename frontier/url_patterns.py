"""Regular expressions that people write, for URLs and other texts. What a site sends cannot make them take long."""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Any

import pcre2  # type: ignore[import-untyped]

from frontier.errors import BadInput

STEPS = 100_000
"""A search ends after so many steps, which take less than a millisecond. Each character before a match takes one. PCRE2 has
a limit of its own, a hundred times as high."""

_VERBOSE = re.compile(r"\(\?[a-z]*x")
"""In such a pattern, spaces do not count, and # begins a comment."""

_REPEATS = re.compile(r"[*+{]")
"""Only what repeats a part can take long. Without it, the `re` module is used, which is six times as fast for a URL."""


def limited(pattern: str, steps: int) -> Any:
    """The expression that finds `pattern` in a text, as PCRE2 understands it, in at most `steps` steps, of which each
    character before the match takes one. It begins where the search does, so that the limit counts for the search as a
    whole, not again for each place where a match could begin. A search that takes more raises pcre2.LibraryError. Raises
    pcre2.PatternError or ValueError for what is not an expression."""
    pcre2.compile(pattern, jit=False)  # so that a bracket cannot close the group below
    end = "\n" if _VERBOSE.match(pattern) else ""  # of a comment
    return pcre2.compile(rf"(*LIMIT_MATCH={steps})\G(?s:.*?)\K(?:{pattern}{end})")


@lru_cache(maxsize=1_000)
def _compiled(pattern: str) -> re.Pattern[str]:
    """The expression. Warnings that a later Python may read it in another way would name a line of this file."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        return re.compile(pattern)


class UrlPattern:
    """The regular expression `pattern`, in the common syntax of Python and PCRE2. `if_unknown`: the answer if the search
    ends too early to tell. Raises BadInput."""

    __slots__ = ("_search", "if_unknown", "pattern")

    def __init__(self, pattern: str, if_unknown: bool = False) -> None:
        self.pattern = pattern
        self.if_unknown = if_unknown
        try:
            found = _compiled(pattern)  # its errors are clearer
            if _REPEATS.search(pattern):
                found = limited(pattern, STEPS)
        except (re.error, pcre2.PatternError, ValueError, RecursionError) as error:
            raise BadInput(f"not a regular expression: {pattern!r}: {error}") from None
        self._search = found.search

    def __repr__(self) -> str:
        return f"<UrlPattern {self.pattern!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlPattern) and (self.pattern, self.if_unknown) == (other.pattern, other.if_unknown)

    def __hash__(self) -> int:
        return hash((self.pattern, self.if_unknown))

    def is_in(self, url: str) -> bool:
        """Whether the expression is found in `url`."""
        try:
            return self._search(url) is not None
        except pcre2.LibraryError:
            return self.if_unknown


def is_in_url(pattern: str, url: str) -> bool:
    """Whether the regular expression `pattern` is found in `url`. Raises BadInput."""
    return _of(pattern).is_in(url)


_of = lru_cache(maxsize=1_000)(UrlPattern)
