"""Parses the attributes of a start tag. Pure."""

from __future__ import annotations

import re
from html.entities import html5

from turbohtml import unescape

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


def _number(written: str) -> str:
    digits = written[2:].rstrip(";")
    # `unescape` leaves out control characters and noncharacters. The standard keeps them (HTML 13.2.5.80).
    return unescape(written) or chr(int(digits[1:], 16) if digits[0] in "xX" else int(digits.lstrip("0")))


def _of_attribute(match: re.Match[str]) -> str:
    written = match[0]
    return _number(written) if written[1] == "#" else html5.get(written[1:], written)


def _of_text(match: re.Match[str]) -> str:
    written = match[0]
    return _number(written) if written[1] == "#" else unescape(written)


def attribute_text(value: bytes, codec: str) -> str:
    """An attribute's `value` as text; or several values, separated by something that is not a letter, a digit, or `=`."""
    text = value.decode(codec, "replace")
    return _IN_ATTRIBUTE.sub(_of_attribute, text) if "&" in text else text


def content_text(content: bytes, codec: str) -> str:
    """The `content` of an element without child elements as text."""
    return _IN_TEXT.sub(_of_text, content.decode(codec, "replace"))
