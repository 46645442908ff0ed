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
    while start is not None:
        start = _scan_from(page, start, tags)
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


def _scan_from(page: bytes, start: int, tags: Tags) -> int | None:
    """Scan on from `start`; returns where to go on after something that was no tag after all, None at the end."""
    found = anchors = tags.a
    match: re.Match[bytes] | None = None
    for match in _TAGS.finditer(page, start):
        kind = match.lastgroup
        if kind == "a":
            at = match.start()
            if page[at - 1] != _GREATER and _is_quoted(page, at):
                return at + 1
            anchors.append(match[1])
            found = anchors
        elif kind == "other":
            found = getattr(tags, match["name"].decode().lower())
            found.append(match["other"])
        elif kind == "iframe":
            found = tags.frame
            found.append(match["iframe"])
        elif kind == "title" and tags.title is None and not _is_drawn(page[: match.start()]):
            tags.title = match["title"]
    if match is not None and match.lastgroup in ("a", "other", "iframe") and match.end(match.lastgroup) == len(page):
        found.pop()  # a tag that the page leaves open is none
    return None


_GREATER = ord(">")


def _is_quoted(page: bytes, at: int) -> bool:
    """Whether the `<` at `at` stands within another tag, in one of its attribute values."""
    before = page.rfind(b"<", 0, at)
    return before >= 0 and page.rfind(b">", before, at) < 0 and page[before + 1 : before + 2].isalpha()


def _is_drawn(before: bytes) -> bool:
    """Whether what follows `before` belongs to an SVG image, whose titles are not the page's."""
    before = before.lower()
    return before.count(b"<svg") > before.count(b"</svg")
