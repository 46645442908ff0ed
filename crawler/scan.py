"""From the octets of a page to the few tags that matter to a crawler, without a tree. Pure.

One regular expression walks over the page as the tokenizer of the HTML standard does (13.2.5): comments, scripts and
other raw text are passed over, quoted attribute values may hold anything, and what the page leaves open ends with the
page. It works on octets, so only what is taken needs decoding: in all encodings of the web but UTF-16 and ISO-2022-JP,
which have to be transcoded before, the octets of markup are those of ASCII.

What a tree would know and this does not: that the content of `template` is inert, that SVG has no raw text, and, where a
quoted attribute value holds a `>` and after it a whole tag `a`, that this is no tag. Each may give a link too many.

Linear in the page, whatever it holds: every construct, once begun, is taken to its end or to that of the page, and no
repetition gives back what it took (`++`, `*+`). 5 us a kilobyte of documentation pages, where a tree takes 9.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from crawler.attributes import SPACE, any_case


@dataclass(slots=True)
class Tags:
    """The attributes of a page's tags, as they are written and in their order; `crawler.attributes` takes them apart.

    `title` is the content of the first one, None if there is none.
    """

    a: list[bytes] = field(default_factory=list)
    area: list[bytes] = field(default_factory=list)
    base: list[bytes] = field(default_factory=list)
    frame: list[bytes] = field(default_factory=list)  # and iframe
    html: list[bytes] = field(default_factory=list)
    link: list[bytes] = field(default_factory=list)
    meta: list[bytes] = field(default_factory=list)
    title: bytes | None = None


def scan(page: bytes) -> Tags:
    """The tags of `page`, in an encoding that writes ASCII as ASCII. Links to a part of the page itself are left out
    where they are written as is usual."""
    tags = Tags()
    page = page.replace(b"\0", b"?")  # in HTML an error in all places
    start: int | None = 0
    drawn = _Drawn(page)
    while start is not None:
        start = _scan_from(page, start, tags, drawn)
    return tags


def _tag(*names: str) -> str:
    return f"(?:{'|'.join(map(any_case, names))})(?=[{SPACE}/>])"


def _raw_text(name: str) -> str:
    return f"(?:[^<]++|<(?!/{_tag(name)}))*+"


_VALUE = rf"""=[{SPACE}]*+(?:"[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|[^{SPACE}>"'][^{SPACE}>]*+|)"""
_ATTRIBUTES = f"(?:[^=>]++|{_VALUE})*+"
_END = r"(?:>|\Z)"
_COMMENT = r"--(?:-?>|(?:[^-]++|-(?!-!?>))*+(?:--!?>|\Z))"

# The script data states (13.2.5.15 to 31): `<!--` and then `<script` hide a `</script`.
_SCRIPT_TAG = _tag("script")
_DOUBLY_ESCAPED = rf"(?:[^-<]++|-(?!->)|<(?!/{_SCRIPT_TAG}))*+(?:</{_SCRIPT_TAG}|(?=-->)|\Z)"
_ESCAPED = rf"(?:[^-<]++|<{_SCRIPT_TAG}{_DOUBLY_ESCAPED}|-(?!->)|<(?!/?{_SCRIPT_TAG}))*+(?:-->|(?=<)|\Z)"
_SCRIPT = f"(?:[^<]++|<!(?=--){_ESCAPED}|<(?!/{_SCRIPT_TAG}|!--))*+"

_HERE = f'[{SPACE}]++(?:class="[^"]*+"[{SPACE}]++)?href="#'
"""Half of the links of documentation lead to a part of the same page."""

_NOT_THESE = (
    "(?![/cCdDeEoOuU]|[sS][eEmMpPuU]|[tT][aAbBdDhHrRtT]|[aA][^rR]|[bB][^aA]|[hH][^tT]|[iI][^fF]|[pP][^lL]"
    "|[lL][iI][^nN])"
)
"""Most tags are of no interest. To turn the commonest of them away first halves the time of the whole."""

_OTHERS = [
    f"(?P<name>{_tag('link', 'meta', 'area', 'base', 'html', 'frame')})(?P<other>{_ATTRIBUTES}){_END}",
    f"{_SCRIPT_TAG}{_ATTRIBUTES}{_END}{_SCRIPT}",
    f"{_tag('title')}{_ATTRIBUTES}{_END}(?P<title>{_raw_text('title')})",
    f"{_tag('iframe')}(?P<iframe>{_ATTRIBUTES}){_END}{_raw_text('iframe')}",
    *[
        f"{_tag(name)}{_ATTRIBUTES}{_END}{_raw_text(name)}"
        for name in ("style", "textarea", "xmp", "noembed", "noframes")
    ],
    f"{_tag('plaintext')}(?s:.*+)",
    f"!(?:{_COMMENT}|[^>]*+)",
    r"\?[^>]*+",
]
_TAGS = re.compile(
    f"<(?:{_tag('a')}(?!{_HERE})(?P<a>{_ATTRIBUTES}){_END}|{_NOT_THESE}(?:{'|'.join(_OTHERS)}))".encode()
)


_WHOLE_TAG = re.compile(f"<[a-zA-Z]{_ATTRIBUTES}{_END}".encode())


def _scan_from(page: bytes, start: int, tags: Tags, drawn: _Drawn) -> int | None:
    """Scan on from `start`; returns where to go on after something that was no tag after all, None at the end."""
    found = anchors = tags.a
    match: re.Match[bytes] | None = None
    for match in _TAGS.finditer(page, start):
        kind = match.lastgroup
        if kind == "a":
            at = match.start()
            if page[at - 1] != _GREATER and (end := _end_around(page, at)) is not None:
                return end
            anchors.append(match[1])
            found = anchors
        elif kind == "other":
            found = getattr(tags, match["name"].decode().lower())
            found.append(match["other"])
        elif kind == "iframe":
            found = tags.frame
            found.append(match["iframe"])
        elif kind == "title" and tags.title is None and not drawn.holds(match.start()):
            tags.title = match["title"]
    if match is not None and match.lastgroup in ("a", "other", "iframe") and match.end(match.lastgroup) == len(page):
        found.pop()  # a tag that the page leaves open is none
    return None


_GREATER = ord(">")


def _end_around(page: bytes, at: int) -> int | None:
    """Where the tag ends in one of whose attribute values the `<` at `at` stands; None if it stands in none.

    To go on from there, and not from the next octet, keeps the whole linear: nothing is walked over more than twice.
    """
    before = page.rfind(b"<", 0, at)
    if before < 0 or page.find(b">", before, at) >= 0:
        return None
    around = _WHOLE_TAG.match(page, before)
    return around.end() if around else None


class _Drawn:
    """Where in a page an SVG image is open, whose titles are not the page's. Asked for places in their order, so that each
    octet is looked at once."""

    def __init__(self, page: bytes) -> None:
        self._page = page
        self._looked_at = 0
        self._open = 0

    def holds(self, at: int) -> bool:
        """Whether an image is open at `at`."""
        part = self._page[self._looked_at : at].lower()
        self._looked_at = at
        self._open = max(0, self._open + part.count(b"<svg") - part.count(b"</svg"))
        return self._open > 0
