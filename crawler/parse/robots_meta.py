"""Reads the instructions of a page to crawlers: meta robots and X-Robots-Tag. Pure.

RFC 9309 does not cover them. The words are those that the large search engines document: `nofollow`, `noindex`,
`noarchive` and `none` (the first two), and `noai` and `noimageai`, which DeviantArt introduced in 2022. Others, and
directives for other agents, are ignored. Several sources add up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

_KNOWN = frozenset({"nofollow", "noindex", "noarchive"})
_AI = ("noai", "noimageai")
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
"""Directives with a value after a colon. A colon also follows the name of an agent."""

_SEPARATORS = re.compile(r"[\s,;]+")
_AGENT = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")  # a token of RFC 9110 5.6.2, in lower case
_LONGEST = 4096  # characters of a value that are read, after leading white space


class Directives(msgspec.Struct, frozen=True):
    """`nofollow`: take no links from the page. `noindex` and `noarchive` are for users of the archive. `noai` and
    `noimageai`: who says this, such as `X-Robots-Tag`; empty if nobody does."""

    nofollow: bool = False
    noindex: bool = False
    noarchive: bool = False
    noai: str = ""
    noimageai: str = ""


def directives(metas: Iterable[tuple[str, str]], headers: Sequence[str], user_agent: str) -> Directives:
    """The directives in `metas` (name and content of each `meta` element) and in the X-Robots-Tag values `headers`.

    `user_agent`: our product token, compared without regard to case.
    """
    agent = user_agent.lower()
    said: set[str] = set()
    who: dict[str, str] = {}
    for name, content in metas:
        if name.lower() in ("robots", agent):
            _note(_SEPARATORS.split(content.lstrip()[:_LONGEST].lower()), f"meta {name.lower()}", said, who)
    for value in headers:
        _note(_from_header(value.lstrip()[:_LONGEST].lower(), agent), "X-Robots-Tag", said, who)
    if "none" in said:
        said |= {"nofollow", "noindex"}
    return Directives(**dict.fromkeys(_KNOWN & said, True), **who)  # type: ignore[arg-type]


def _note(words: Iterable[str], source: str, said: set[str], who: dict[str, str]) -> None:
    """Add `words` to `said`, and to `who` the first source of each word about AI."""
    said.update(words)
    for word in _AI:
        if word in said:
            who.setdefault(word, source)


def _from_header(value: str, agent: str) -> set[str]:
    """The words in `value` for `agent`: one in `noindex, otherbot: nofollow`."""
    said: set[str] = set()
    for_us = True
    for part in re.split("[,;]", value):
        name, colon, rest = part.partition(":")
        name = name.strip()
        if colon and (name in _VALUED or not _AGENT.fullmatch(name)):
            continue  # a value, or the rest of a date that contains a comma
        if colon:
            for_us = name == agent
            part = rest
        if for_us:
            said.add(part.strip())
    return said
