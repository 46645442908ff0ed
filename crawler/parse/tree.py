"""Parses a document into a tree with a WHATWG parser (turbohtml), and limits what hostile markup can cost. Pure.

Every document is parsed here. The parser is linear and releases the interpreter lock, whatever it parses (tags nested a
million deep, attributes of megabytes), except for two constructions that the standard itself makes quadratic:

- Formatting elements that a paragraph leaves open are opened again in each later paragraph (HTML 13.2.4.3). In documents
  with many tags, they are therefore renamed to `span`, which has no such effect.
- The attributes of each `<html>` and `<body>` are compared with those of the first one, and added to them (13.2.6.4.7):
  200 KB of such tags took seven seconds and gigabytes. All but the first few are therefore renamed to `bgsound`, which is
  allowed everywhere, and has neither content nor effect.

A renamed tag in an attribute or a script is not a tag, but only the parser can tell, so text from the tree must be
`restored`.
"""

from __future__ import annotations

import re
from itertools import islice

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

_SAFE_ROOTS = 8
"""Tags of roots with attributes that keep their names. Browsers add the attributes of some more, but a page means the same
without them."""

_ROOT = "<(?=(?:html|body)[\t\n\f\r /])"
_ROOT_BYTES = re.compile(_ROOT.encode(), re.IGNORECASE)
_ROOT_TEXT = re.compile(_ROOT, re.IGNORECASE)
_RENAMED_ROOT = "<bgsound \ue000"


def parse(body: bytes, charset: str | None) -> turbohtml.Document:
    """The document in `body`. `charset`: its encoding as found by `crawler.parse.html`; None: detect it here. An unknown
    one is ignored."""
    if body.count(b"<") > _SAFE_TAGS or _may_have_many_roots(body):
        # So few bytes contain at most 2,730 start tags, whatever the number of their `<`.
        encoding = _parse_whole(body[:_PRESCANNED], charset).encoding or "UTF-8"
        return parse_text(body.decode(f"whatwg-{encoding}", "replace").removeprefix("\ufeff"))
    return _parse_whole(body, charset)


def parse_text(text: str) -> turbohtml.Document:
    """The document in `text`. Text from it must be `restored`."""
    if text.count("<") > _SAFE_TAGS:
        text = _FORMATTING.sub(_RENAMED, text)
    text = _with_few_roots(text)
    # Templates with a shadow root are ordinary elements here: their links belong to the page.
    return turbohtml.parse(text, positions=False, allow_declarative_shadow_roots=False)


def restored(text: str) -> str:
    """`text` from a document, with tag names as in the page."""
    return text.replace(_RENAMED, "<").replace(_RENAMED_ROOT, "<") if "\ue000" in text else text


def _may_have_many_roots(body: bytes) -> bool:
    """Whether `body`, in whatever encoding, may have more than `_SAFE_ROOTS`. In UTF-16, tags contain NUL, and in
    ISO-2022-JP they may contain ESC."""
    return b"\0" in body or b"\x1b" in body or len(_ROOT_BYTES.findall(body)) > _SAFE_ROOTS


def _with_few_roots(text: str) -> str:
    last = next(islice(_ROOT_TEXT.finditer(text), _SAFE_ROOTS - 1, None), None)
    return text[: last.end()] + _ROOT_TEXT.sub(_RENAMED_ROOT, text[last.end() :]) if last else text


def _parse_whole(body: bytes, charset: str | None) -> turbohtml.Document:
    try:
        return turbohtml.parse(body, encoding=charset, positions=False)
    except LookupError:
        return turbohtml.parse(body, positions=False)
