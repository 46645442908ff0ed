"""Finds what a page embeds: style sheets, images, scripts, fonts, media and frames. Pure.

Only what stands in the markup and in style sheets is found; what a script loads needs a browser. The markup is read from
the tree of the page, which a crawl that archives no requisites does not build. References are returned as they are written.

A style sheet is searched with one regular expression, which knows comments, strings and `url()` as CSS Syntax 4.3 does. A
parser that makes objects of all tokens (tinycss2) finds the same in 1,500 files, and takes seven times as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from crawler.parse.tree import MOST_TAGS, first_tags, parse, parse_text, restored

if TYPE_CHECKING:
    from turbohtml import Document, Element

_RELATIONS = frozenset({"stylesheet", "icon", "apple-touch-icon", "apple-touch-icon-precomposed", "mask-icon"}) | {
    *("preload", "modulepreload", "manifest")
}
"""What a `link` element embeds, by its `rel`. `shortcut icon` has two words."""

_REFERENCES = ("src", "data-src", "data-lazy-src", "data-original", "data-hi-res-src", "poster", "background")
_STYLES = ("style", "data-bg", "data-background", "data-background-image", "mask", "filter", "fill")
"""Attributes with CSS, or, of scripts that load images late, with a reference in its place."""

_SETS = ("srcset", "data-srcset", "data-lazy-srcset", "imagesrcset")
_OF_ELEMENT = {"object": ("data",)} | dict.fromkeys(("image", "use", "feimage", "script"), ("href", "xlink:href"))
_SELECTED = ", ".join(
    [
        *("link[rel]", "style", "iframe[srcdoc]", "feImage", *_OF_ELEMENT),
        *(f"[{name}]" for name in (*_REFERENCES, *_SETS, *_STYLES)),
    ]
)

_BARE_REFERENCE = re.compile(r"[^\s()]*(?:/|\.[a-zA-Z]{2,5}(?:[?#]|\Z))[^\s()]*")

_MOST_NESTED = 3
"""How deep documents in `srcdoc` are read."""

_CANDIDATE = re.compile(r"([^\s,]\S*+)(?:(?<!,)(?:\s++[^\s,]++)++)?")
"""An image in a `srcset`: a URL, which may contain commas but ends before one, and its size."""

_QUOTED = r""""(?:[^"\\\n]|\\[\s\S])*+"|'(?:[^'\\\n]|\\[\s\S])*+'"""
_STRING = r""""(?:[^"\\\n]|\\[\s\S])*+"?|'(?:[^'\\\n]|\\[\s\S])*+'?"""
"""Also a string without its end. If it were no match, each quotation mark in it would be taken for a beginning, and the
rest searched again."""

_BARE = r"(?:[^\s\"'()\\]|\\(?:[0-9a-f]{1,6}\s?|[^0-9a-f]))*+"
_GAP = r"(?:\s|/\*[\s\S]*?\*/)*+"
_CSS = re.compile(
    rf"(?i)/\*[\s\S]*?(?:\*/|\Z)|@namespace[^;]*+|@import{_GAP}(?P<imported>{_QUOTED})"
    rf"|(?<![\w-])url\(\s*+(?P<url>{_QUOTED}|{_BARE})\s*+\)"
    rf"|(?<!\w)image-set\((?P<images>(?:[^()\"']|\([^()]*+\)|{_QUOTED})*+)\)|{_STRING}"
)
_IMAGE = re.compile(rf"(?i)(?:type|url)\([^()]*+\)|(?P<image>{_QUOTED})|{_STRING}")
_ESCAPE = re.compile(r"\\(?:([0-9a-fA-F]{1,6})(?:\r\n|\s)?|(\n)|([\s\S]))")


def embedded_in(body: bytes, encoding: str) -> list[str]:
    """What the HTML page `body` embeds. `encoding`: its WHATWG name."""
    return list(dict.fromkeys(filter(_can_be_fetched, _in_document(parse(first_tags(body, MOST_TAGS), encoding), 0))))


def embedded_in_css(text: str) -> list[str]:
    """What the style sheet `text` imports and embeds."""
    return list(dict.fromkeys(filter(_can_be_fetched, _in_css(text))))


def _can_be_fetched(reference: str) -> bool:
    return reference[:1] not in ("", "#") and reference[:5].lower() not in ("data:", "blob:")


def _in_document(document: Document, depth: int) -> Iterator[str]:
    for element in document.select(_SELECTED):
        name = element.tag.lower()

        def value(key: str, of: Element = element) -> str:
            return restored(of.attr(key) or "").strip()

        yield from map(value, (*_REFERENCES, *_OF_ELEMENT.get(name, ())))
        for key in _SETS:
            yield from (candidate.rstrip(",") for candidate in _CANDIDATE.findall(value(key)))
        if name == "link" and not _RELATIONS.isdisjoint(value("rel").lower().split()):
            yield value("href")
        for key in _STYLES:
            written = value(key)
            yield from _in_css(written)
            if key.startswith("data-") and _BARE_REFERENCE.fullmatch(written):
                yield written
        if name == "style":
            yield from _in_css(restored(element.text))
        if (inner := value("srcdoc")) and depth < _MOST_NESTED:
            yield from _in_document(parse_text(inner), depth + 1)


def _in_css(text: str) -> Iterator[str]:
    for found in _CSS.finditer(text):
        if written := found["imported"] or found["url"]:
            yield _unescaped(written)
        elif images := found["images"]:
            yield from _in_css(images)
            yield from (_unescaped(one["image"]) for one in _IMAGE.finditer(images) if one["image"])


def _unescaped(text: str) -> str:
    """What `text`, a string or the unquoted content of a `url()`, stands for (CSS Syntax 4.3.7)."""
    text = text[1:-1] if text[0] in "\"'" else text
    return _ESCAPE.sub(_character, text).strip()


def _character(found: re.Match[str]) -> str:
    if found[1]:
        code = int(found[1], 16)
        return chr(code) if 0 < code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "\ufffd"
    return found[3] or ""
