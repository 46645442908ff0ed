"""Finds the media type and the encoding of a body. Pure.

The encoding is found as in the HTML standard (13.2.3), by the first of: a byte order mark, the transport's charset, the
document's `meta`, an XML declaration, and a guess (13.2.3.2, step 9): UTF-8 if the bytes beyond ASCII are almost all valid
UTF-8, else what turbohtml's detector says, which is Firefox's. Of 346 documents in 20 encodings, it recognises 340 by the
4,000 bytes that are used here, 337 by 200, and 331 by 60 (chardet 7: 344, 335 and 328, in four times the time).
What was found for other pages of a site does not help: of 90 documents of sites with several, it mends 2 and spoils 2.
"""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from typing import Any

import msgspec

HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
XML_TYPES = frozenset({"text/xml", "application/xml"})

_CHARSET = re.compile(r"""charset\s*+=\s*+(?:["']\s*+)?+([^\s;"']{1,40})""", re.IGNORECASE)
"""Linear: no repetition gives back what it matched."""

_LONGEST_DECLARATION = 1_024
"""Characters of a media type's parameters, or of a `meta` element's content, that are searched for a charset. The HTML
standard's own search for one looks at 1,024 bytes (13.2.3.2)."""

_XML_DECLARATION = re.compile(
    rb"""(?:\xef\xbb\xbf)?<\?xml\s[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][A-Za-z0-9._:-]{0,39})["']"""
)
_XHTML_NAMESPACE = b"http://www.w3.org/1999/xhtml"
_LEADING_TAG = re.compile(rb"(?:\xef\xbb\xbf)?[\t\n\f\r ]*<([!?a-zA-Z][a-zA-Z:]*)")
_UNKNOWN = frozenset(
    {
        "",
        "unknown/unknown",
        "application/unknown",
        "application/xhtml",
        "text/htm",
        "text/xhtml",
        "content/html",
        "text/vnd.wap.wml",
        "application/vnd.wap.xhtml+xml",
    }
)
"""Types that say nothing, slips for HTML, and those of old phones, under which sites send HTML to all."""
_BY_TAG = {
    b"?xml": "text/xml",
    b"rss": "application/rss+xml",
    b"feed": "application/atom+xml",
    b"rdf:rdf": "application/rdf+xml",
    b"urlset": "text/xml",
    b"sitemapindex": "text/xml",
}


_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]++"  # RFC 9110 5.6.2
_TYPE = re.compile(rf"[\t\n\r ]*+({_TOKEN}/{_TOKEN})")
_VALUES = re.compile(r"""(?:[^,"]++|"(?:[^"\\]++|\\.)*+"?+)++""", re.DOTALL)


class MediaType(msgspec.Struct, frozen=True):
    """A parsed Content-Type header: `essence` in lower case, `charset` as written, or None."""

    essence: str
    charset: str | None

    @classmethod
    def parse(cls, header: str) -> MediaType:
        """The type in a Content-Type value, or in the list of values of several such headers.

        The last valid one counts, as in browsers (Fetch, "extract a MIME type"). Unlike in browsers, what follows a type
        cannot make it invalid: `text/html charset=utf-8` is read as HTML.
        """
        return (_remembered if len(header) <= _REMEMBERED_LENGTH else _parsed)(header)


def _parsed(header: str) -> MediaType:
    essence, charset = "", ""
    for value in _VALUES.findall(header) if "," in header else [header]:
        found = _TYPE.match(value)
        if found is None or found[1] == "*/*":
            continue
        if found[1].lower() != essence:
            essence, charset = found[1].lower(), ""
        charset = _charset_in(value[found.end() :]) or charset
    return MediaType(essence, charset or None)


_REMEMBERED_LENGTH = 200  # characters; a site may send longer ones, up to 64 KB
_remembered = lru_cache(maxsize=256)(_parsed)


def _charset_in(declaration: str) -> str:
    """The charset in `declaration`, as written; empty if there is none."""
    found = _CHARSET.search(declaration, 0, _LONGEST_DECLARATION)
    return found[1] if found else ""


def sniffed(essence: str, body: bytes) -> str:
    """The media type of `body`, sent as `essence`: if that says nothing, the one by the first tag, or "" without one (MIME
    Sniffing 7.1, much simplified)."""
    if essence not in _UNKNOWN:
        return essence
    tag = _LEADING_TAG.match(body)
    return _BY_TAG.get(tag[1].lower(), "text/html") if tag else ""


def is_read_by_bytes(essence: str) -> bool:
    """Whether `is_html` depends on the body."""
    return essence in _UNKNOWN or essence in XML_TYPES


def is_html(essence: str, body: bytes) -> bool:
    """Whether to parse `body`, sent as `essence`, as HTML: also XHTML, sent as such or as XML with its namespace near the
    start, and a body without a type that begins with a tag of HTML."""
    if essence in HTML_TYPES:
        return True
    essence = sniffed(essence, body)
    if essence in XML_TYPES:
        return _XHTML_NAMESPACE in body[:2048]
    return essence in HTML_TYPES


_UTF_16 = ("UTF-16LE", "UTF-16BE")
_MARKS = ((b"\xef\xbb\xbf", "UTF-8"), (b"\xff\xfe", "UTF-16LE"), (b"\xfe\xff", "UTF-16BE"))


def encoding_sent(body: bytes, charset: str | None) -> str | None:
    """The WHATWG name of the encoding of `body` by its byte order mark, else by the transport's `charset`; None if there is
    neither, `charset` is unknown, or it is UTF-16, such as `unicode`, for a body whose tags have no NUL in them."""
    for mark, encoding in _MARKS:
        if body.startswith(mark):
            return encoding
    named = encoding_named(charset) if charset else None
    return None if named in _UTF_16 and _LEADING_TAG.match(body) else named


def as_text(body: bytes, charset: str | None) -> str:
    """`body` as text without a byte order mark, in the encoding of that mark, else in `charset`, else in UTF-8."""
    return body.decode(codec_of(encoding_sent(body, charset) or "UTF-8"), "replace").removeprefix("\ufeff")


def encoding_of_meta(charset: str, http_equiv: str, content: str) -> str | None:
    """The encoding that a `meta` element with these attributes declares; None if it declares none (HTML 13.2.3.2)."""
    if not charset and http_equiv.lower() == "content-type":
        charset = _charset_in(content)
    encoding = encoding_named(charset)
    if encoding in _UTF_16:
        return "UTF-8"  # the declaration could not be read if it were true
    return "windows-1252" if encoding == "x-user-defined" else encoding


def encoding_guessed(body: bytes, is_xml: bool, host: str = "") -> str:
    """The encoding of a `body` from `host` that HTML does not declare. `is_xml`: sent as XML, whose default is UTF-8 (XML
    1.0 4.3.3)."""
    declaration = _XML_DECLARATION.match(body)
    declared = encoding_named(declaration[1].decode("ascii")) if declaration else None
    if declared or is_xml:
        return declared or "UTF-8"
    if body.isascii():
        return "ISO-2022-JP" if b"\x1b$" in body else "windows-1252"
    return "UTF-8" if _is_utf8(body) else _detected(body, host)


_SAMPLE = 4_000  # bytes: 2.5 ms
_GOOD = 20
"""So many characters of UTF-8 for each byte that is none: a page of UTF-8 with a broken comment or name in it."""


def _detected(body: bytes, host: str) -> str:
    from turbohtml.detect import Detection, detect  # noqa: PLC0415 - see `crawler.parse.tree`

    sample = _sample(body)
    as_utf8 = sample.decode("utf-8", "replace")
    bad = as_utf8.count("\N{REPLACEMENT CHARACTER}")
    if sum(not character.isascii() for character in as_utf8) > _GOOD * bad:
        return "UTF-8"
    label = host.rpartition(".")[2]
    tld = label if _LABEL.fullmatch(label) else None
    return detect(sample, Detection(tld=tld)).encoding or "windows-1252"


def _sample(body: bytes) -> bytes:
    """The first texts between tags of `body` that have bytes beyond ASCII."""
    parts: list[bytes] = []
    size, at = 0, 0
    while size < _SAMPLE and (found := _BEYOND_ASCII.search(body, at)):
        start = max(at, body.rfind(b">", at, found.start()) + 1, found.start() - _SAMPLE)
        end = body.find(b"<", found.start(), start + _SAMPLE)
        at = end if end >= 0 else min(start + _SAMPLE, len(body))
        parts.append(body[start:at])
        size += at - start
    return b" ".join(parts)


_LABEL = re.compile(r"[a-z][a-z0-9-]*")
_BEYOND_ASCII = re.compile(rb"[\x80-\xff]")


def _is_utf8(body: bytes) -> bool:
    try:
        codecs.utf_8_decode(body, "strict", False)  # it may have been cut within a character
    except UnicodeDecodeError:
        return False
    return True


_LONGEST_LABEL = 40  # characters; the standard's longest has 19


def encoding_named(label: str) -> str | None:
    """The WHATWG name of the encoding with this `label`; None if there is none."""
    return _named(label) if 0 < len(label) <= _LONGEST_LABEL else None


@lru_cache(maxsize=256)
def _named(label: str) -> str | None:
    if label.lower() == "utf-8":
        return "UTF-8"
    import turbohtml  # noqa: PLC0415 - see `crawler.parse.tree`

    try:
        return turbohtml.parse(b"", encoding=label).encoding
    except LookupError:
        return None


def codec_of(encoding: str) -> str:
    """The codec for the encoding with this WHATWG name."""
    if encoding == "UTF-8":
        return "utf-8"
    import turbohtml.detect  # noqa: F401, PLC0415 - registers the codecs `whatwg-*`

    return f"whatwg-{encoding}"


_TWO_BYTES = {
    "Big5": "big5",
    "EUC-JP": "euc_jp",
    "EUC-KR": "cp949",
    "GBK": "gbk",
    "ISO-2022-JP": "iso2022_jp",
    "Shift_JIS": "cp932",
    "gb18030": "gb18030",
}
"""Python's codecs that write encodings with more than one byte for a character. Some codecs with the standard's names lack
characters."""


UNICODE = frozenset({"UTF-8", "UTF-16LE", "UTF-16BE", "replacement", "x-user-defined"})
"""Encodings whose documents write queries and forms in UTF-8 (Encoding 4.3, get an output encoding)."""


def encoded(text: str, encoding: str, errors: str) -> bytes:
    """`text` as a document in the encoding with this WHATWG name writes it. `errors`: the handler for characters that it
    lacks."""
    if encoding in UNICODE:
        return text.encode(errors=errors)
    if codec := _TWO_BYTES.get(encoding):
        return text.encode(codec, errors)
    return codecs.charmap_encode(text, errors, _table(encoding))[0]


@lru_cache(maxsize=64)
def _table(encoding: str) -> Any:
    """The standard's index of a single-byte encoding. Python's codecs lack some characters of it: the controls that stand
    for unused bytes of windows-1252 and its like, which a wrongly read page is full of."""
    characters = bytes(range(256)).decode(codec_of(encoding), "replace")
    return codecs.charmap_build(characters.replace("\N{REPLACEMENT CHARACTER}", "\ufffe"))  # no character
