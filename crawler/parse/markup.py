"""Parses the attributes of a start tag. Pure."""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5

SPACE = r"\t\n\f\r "
"""ASCII whitespace in HTML, which has no vertical tab."""

NAME = rf"[^{SPACE}/>][^{SPACE}/>=]*+"
EQUALS = f"[{SPACE}]*+=[{SPACE}]*+"
_VALUE = rf"""{EQUALS}(?:"([^"]*+)"?|'([^']*+)'?|([^{SPACE}>]*+))"""
ANY_VALUE = rf"""{EQUALS}(?:"[^"]*+"?|'[^']*+'?|[^{SPACE}>]*+)"""
_ATTRIBUTE = re.compile(f"({NAME})(?:{_VALUE})?".encode())


def attributes(written: bytes) -> dict[bytes, bytes]:
    """The attributes in `written` by name in lower case. The first one of a name counts. Values are as written."""
    found = reversed(_ATTRIBUTE.findall(written))
    return {name.lower(): double or single or bare for name, double, single, bare in found}


_NUMBER = "#(?:[0-9]+|[xX][0-9a-fA-F]+);?"
_IN_ATTRIBUTE = re.compile(f"&(?:{_NUMBER}|[A-Za-z0-9]++(?:;|(?!=)))")
"""In attributes, `&copy=1` and `&copyright` are not references (HTML 13.2.5.73)."""
_IN_TEXT = re.compile(f"&(?:{_NUMBER}|[A-Za-z0-9]++;?)")


_CONTROLS = {number: bytes((number,)).decode("cp1252", "ignore") or chr(number) for number in range(0x80, 0xA0)}
_LARGEST, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)


def _numbered(written: str) -> str:
    """The character with a number (HTML 13.2.5.80)."""
    digits = written[2:].strip("xX;").lstrip("0")[:8]  # no character has a longer number
    number = int(digits or "0", 16 if written[2] in "xX" else 10)
    if not 0 < number <= _LARGEST or number in _SURROGATES:
        return "\ufffd"
    return _CONTROLS.get(number) or chr(number)


def _of_attribute(match: re.Match[str]) -> str:
    written = match[0]
    return _numbered(written) if written[1] == "#" else html5.get(written[1:], written)


def _of_text(match: re.Match[str]) -> str:
    written = match[0]
    return _numbered(written) if written[1] == "#" else html5.get(written[1:]) or unescape(written)


def attribute_text(value: bytes, codec: str) -> str:
    """An attribute's `value` as text; or several values, separated by something that is not a letter, a digit, or `=`."""
    text = value.decode(codec, "replace")
    return _IN_ATTRIBUTE.sub(_of_attribute, text) if "&" in text else text


def content_text(content: bytes, codec: str) -> str:
    """The `content` of an element without child elements as text."""
    return _IN_TEXT.sub(_of_text, content.decode(codec, "replace"))


_RAW_TEXT = frozenset(
    {b"script", b"style", b"title", b"textarea", b"iframe", b"xmp", b"noembed", b"noframes", b"plaintext"}
)
_CONSTRUCT = re.compile(
    rf"<(?:([a-zA-Z][^{SPACE}/>]*+)((?:[{SPACE}/]*+{NAME}(?:{ANY_VALUE})?+)*+[{SPACE}/]*+)(?:>|\Z)"
    r"|(?s:!--.*?(?:-->|\Z)|!\[CDATA\[.*?(?:\]\]>|\Z)|\?.*?(?:\?>|\Z)))".encode()
)
"""A start tag with its name and attributes, a comment, a CDATA section or a processing instruction. Linear: whatever is
unclosed is matched to the end of the page."""


def as_html(page: bytes) -> bytes:
    """`page` without comments, CDATA sections and processing instructions, and with an end tag for each element without
    content that HTML would take for the start of raw text."""
    return _CONSTRUCT.sub(_rewritten, page)


def _rewritten(match: re.Match[bytes]) -> bytes:
    name = match[1]
    if name is None:
        return b""
    if name.lower() in _RAW_TEXT and match[2].endswith(b"/"):
        return b"<%b%b></%b>" % (name, match[2], name)
    return match[0]
