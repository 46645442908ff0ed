"""What a page asks of crawlers: meta robots and X-Robots-Tag. Pure.

RFC 9309 leaves this to the page. The vocabulary is the one that the large search engines document:
`nofollow`, `noindex`, `noarchive` and `none` (the first two); anything else is ignored. What several sources
say adds up, and a directive for another agent says nothing to us.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

_KNOWN = frozenset({"nofollow", "noindex", "noarchive"})
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
"""Directives with a value after a colon, which an agent's name before the directives has, too."""

_SEPARATORS = re.compile(r"[\s,;]+")
_LONGEST = 4096  # characters of one value that are read, white space before them not counted


class Directives(msgspec.Struct, frozen=True):
    """`nofollow`: take no links from the page; `noindex` and `noarchive` are for those who use the
    archive."""

    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False


def directives(metas: Iterable[tuple[str, str]], headers: Sequence[str], user_agent: str) -> Directives:
    """The sum of `metas` (name and content of each `meta` element) and of the X-Robots-Tag values `headers`.

    `user_agent` is our product token, compared without regard to case.
    """
    agent = user_agent.lower()
    said: set[str] = set()
    for name, content in metas:
        if name.lower() in ("robots", agent):
            said.update(_SEPARATORS.split(content.lstrip()[:_LONGEST].lower()))
    for value in headers:
        said.update(_from_header(value.lstrip()[:_LONGEST].lower(), agent))
    if "none" in said:
        said |= {"nofollow", "noindex"}
    return Directives(**dict.fromkeys(_KNOWN & said, True))


def _from_header(value: str, agent: str) -> set[str]:
    """The words that `value` says to `agent`: `noindex, otherbot: nofollow` says one to us."""
    said: set[str] = set()
    for_us = True
    for part in value.split(","):
        name, colon, rest = part.partition(":")
        name = name.strip()
        if colon and name in _VALUED:
            continue
        if colon:
            for_us = name == agent
            part = rest
        if for_us:
            said.add(part.strip())
    return said
