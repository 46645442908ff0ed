"""Which encoding a document is in, as far as it is said outside of its HTML.

The parser does the rest as the HTML standard says (13.2.3): a byte order mark wins, then the transport's
charset, then the document's `meta`, then a guess: UTF-8 if the octets are valid UTF-8, else windows-1252.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
XML_TYPES = frozenset({"text/xml", "application/xml"})

_CHARSET = re.compile(r"""charset\s*=\s*["']?\s*([^\s;"']{1,40})""", re.IGNORECASE)
_XML_DECLARATION = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._:-]{0,39})["']"""
)
_XHTML_NAMESPACE = b"http://www.w3.org/1999/xhtml"
_LEADING_TAG = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<[!?a-zA-Z]")


@dataclass(frozen=True, slots=True)
class MediaType:
    """A Content-Type header taken apart: `essence` in lower case, `charset` as it was written or None."""

    essence: str
    charset: str | None

    @classmethod
    def parse(cls, header: str) -> MediaType:
        essence, _, parameters = header.partition(";")
        found = _CHARSET.search(parameters)
        return cls(essence.strip().lower(), found[1] if found else None)


def is_html(essence: str, body: bytes) -> bool:
    """Whether `body`, sent as `essence`, is to be parsed as HTML.

    XHTML is, under its own type or as XML that names the namespace early. A body without a type is if it
    begins with a tag (MIME Sniffing 7.1, much simplified).
    """
    if essence in HTML_TYPES:
        return True
    if essence in XML_TYPES:
        return _XHTML_NAMESPACE in body[:2048]
    return not essence and _LEADING_TAG.match(body) is not None


def declared_by_xml(body: bytes) -> str | None:
    """The encoding of the XML declaration, which counts when neither transport nor `meta` names one."""
    found = _XML_DECLARATION.match(body)
    return found[1].decode("ascii") if found else None
