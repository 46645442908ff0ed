"""Bytes to a document, by a WHATWG parser (turbohtml), with a bound on what hostile markup can cost. Pure.

The parser is linear and releases the interpreter lock, whatever it is given (tags nested a million deep,
attributes of megabytes), but for one construction that the standard itself makes quadratic: formatting
elements that a paragraph leaves open are opened again in each one that follows (HTML 13.2.4.3). Four MB of it
took 1.9 GB and 6 s. In documents of many tags formatting elements are therefore given names that have no
such power. Where such a name stands in an attribute or a script it is no tag, but only the parser can tell: so what is
taken out of the document is given back as it was (`restored`).
"""

from __future__ import annotations

import re

import turbohtml
import turbohtml.detect  # registers the codecs `whatwg-*`

_SAFE_TAGS = 4_000  # at worst a million elements: 0.15 s and 130 MB
_PRESCANNED = 8_192  # bytes: the standard looks at 1,024, and real pages declare within a few thousand

_FORMATTING = re.compile(
    r"<(?=[bBiIuUsStTeEcCfFnN])(?=(?:b|i|u|s|tt|em|big|code|font|nobr|small|strike|strong)[\s/>])", re.IGNORECASE
)
"""Start tags of the formatting elements (HTML 13.2.4.2) but `a`, of which only one can be open."""

_RENAMED = "<x\ue000"
"""What their names begin with instead. With a character for private use in it no page says so."""


def parse(body: bytes, charset: str | None) -> turbohtml.Document:
    """The document in `body`. `charset` is its encoding as `crawler.parse.html` found it; None: found out here, an unknown
    one is ignored."""
    if body.count(b"<") > _SAFE_TAGS:
        # So few bytes hold no more than 2,730 start tags, whatever the number of their `<`.
        encoding = _parse_whole(body[:_PRESCANNED], charset).encoding or "UTF-8"
        return parse_text(body.decode(f"whatwg-{encoding}", "replace").removeprefix("\ufeff"))
    return _parse_whole(body, charset)


def parse_text(text: str) -> turbohtml.Document:
    """The document in `text`, without formatting elements but `a`. What is taken out of it is to be `restored`."""
    return turbohtml.parse(_FORMATTING.sub(_RENAMED, text), positions=False)


def restored(text: str) -> str:
    """`text` out of a document, with the names that it has in the page."""
    return text.replace(_RENAMED, "<") if _RENAMED in text else text


def _parse_whole(body: bytes, charset: str | None) -> turbohtml.Document:
    try:
        return turbohtml.parse(body, encoding=charset, positions=False)
    except LookupError:
        return turbohtml.parse(body, positions=False)
