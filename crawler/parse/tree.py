"""Parses a document into a tree with a WHATWG parser (turbohtml), and limits what hostile markup can cost. Pure.

The parser is linear and releases the interpreter lock, whatever it parses (tags nested a million deep, attributes of
megabytes), except for one construction that the standard itself makes quadratic: formatting elements that a paragraph
leaves open are opened again in each later paragraph (HTML 13.2.4.3). In documents with many tags, formatting elements are
therefore renamed to `span`, which has no such effect. A renamed tag in an attribute or a script is not a tag, but only the
parser can tell, so text from the tree must be `restored`.
"""

from __future__ import annotations

import re

import turbohtml
import turbohtml.detect  # registers the codecs `whatwg-*`

_SAFE_TAGS = 4_000  # at worst a million elements
_PRESCANNED = 8_192  # bytes: the standard looks at 1,024, and real pages declare within a few thousand

_FORMATTING = re.compile(
    r"<(?=[bBiIuUsStTeEcCfFnN])(?=(?:b|i|u|s|tt|em|big|code|font|nobr|small|strike|strong)[\s/>])", re.IGNORECASE
)
"""Start tags of the formatting elements (HTML 13.2.4.2) except `a`, of which only one can be open."""

_RENAMED = "<span \ue000"
"""What renamed tags begin with. No page contains this private-use character. Like the formatting elements, `span` ends SVG
and MathML (HTML 13.2.6.5)."""


def parse(body: bytes, charset: str | None) -> turbohtml.Document:
    """The document in `body`. `charset`: its encoding as found by `crawler.parse.html`; None: detect it here. An unknown
    one is ignored."""
    if body.count(b"<") > _SAFE_TAGS:
        # So few bytes contain at most 2,730 start tags, whatever the number of their `<`.
        encoding = _parse_whole(body[:_PRESCANNED], charset).encoding or "UTF-8"
        return parse_text(body.decode(f"whatwg-{encoding}", "replace").removeprefix("\ufeff"))
    return _parse_whole(body, charset)


def parse_text(text: str) -> turbohtml.Document:
    """The document in `text`. Text from it must be `restored`."""
    if text.count("<") > _SAFE_TAGS:
        text = _FORMATTING.sub(_RENAMED, text)
    # Templates with a shadow root are ordinary elements here: their links belong to the page.
    return turbohtml.parse(text, positions=False, allow_declarative_shadow_roots=False)


def restored(text: str) -> str:
    """`text` from a document, with tag names as in the page."""
    return text.replace(_RENAMED, "<") if _RENAMED in text else text


def _parse_whole(body: bytes, charset: str | None) -> turbohtml.Document:
    try:
        return turbohtml.parse(body, encoding=charset, positions=False)
    except LookupError:
        return turbohtml.parse(body, positions=False)
