"""Octets to a document, by a WHATWG parser (turbohtml), with a bound on what hostile markup can cost. Pure.

The parser is linear and releases the interpreter lock, whatever it is given (tags nested a million deep,
attributes of megabytes), but for one construction that the standard itself makes quadratic: formatting
elements left open are opened again in every paragraph that follows (HTML 13.2.4.3, 13.2.6.1). With k of them
and n tags that is k times n elements: 256 KB of `<b c=1><p><b c=2><p>...` took 4.5 s and 1.4 GB. Formatting
elements carry no links, so documents with many tags that could do this get theirs renamed.
"""

from __future__ import annotations

import re

import turbohtml
import turbohtml.detect  # registers the codecs `whatwg-*`

from crawler.charset import declared_by_xml

_QUICK_OCTETS = 131_072
_QUICK_TAGS = 4_000
_SAFE_TAGS = 10_000  # 5,000 formatting elements in 5,000 paragraphs: 0.3 s
_SAFE_ELEMENTS = 25_000_000  # the same bound, where tags can be counted apart
_PRESCANNED = 8_192  # octets: the standard looks at 1,024, and real pages declare within a few thousand

_FORMATTING = re.compile(
    r"<(/?)(?=[bBiIuUsStTeEcCfFnN])((?:b|i|u|s|tt|em|big|code|font|nobr|small|strike|strong)(?=[\s/>]))",
    re.IGNORECASE,
)


def is_quick(body: bytes) -> bool:
    """Whether `body` parses in less than 50 ms whatever it holds, so that it needs no thread.

    Ordinary markup takes 7 us a kilobyte, the worst linear markup 90 us.
    """
    return len(body) <= _QUICK_OCTETS and (len(body) <= 3 * _QUICK_TAGS or body.count(b"<") <= _QUICK_TAGS)


def parse(body: bytes, charset: str | None, is_xml: bool = False) -> tuple[turbohtml.Document, str]:
    """The document and the WHATWG name of its encoding. `charset` is the transport's label; an unknown one is
    ignored.

    `is_xml`: sent as XML, whose encoding is UTF-8 unless something says otherwise (XML 1.0 4.3.3).
    """
    if body.count(b"<") > _SAFE_TAGS:
        _, encoding = parse(body[:_PRESCANNED], charset, is_xml)
        text = body.decode(f"whatwg-{encoding}", "replace").removeprefix("\ufeff")
        return turbohtml.parse(_harmless(text), positions=False), encoding
    document = _parse_as(body, charset)
    if document.encoding_confidence != "certain":
        declared = declared_by_xml(body) or ("utf-8" if is_xml else None)
        if declared and declared.upper() != document.encoding:
            document = _parse_as(body, declared)
    return document, document.encoding or "UTF-8"


def _parse_as(body: bytes, label: str | None) -> turbohtml.Document:
    try:
        return turbohtml.parse(body, encoding=label, positions=False)
    except LookupError:
        return turbohtml.parse(body, positions=False)


def _harmless(text: str) -> str:
    """`text`, with its formatting tags renamed if together with all tags they could make too many
    elements."""
    formatting = sum(1 for _ in _FORMATTING.finditer(text))
    if formatting * text.count("<") <= _SAFE_ELEMENTS:
        return text
    return _FORMATTING.sub(r"<\1x-\2", text)
