"""The attributes of a start tag, as bytes and as text. Pure."""

from __future__ import annotations

import re
from html.entities import html5

from turbohtml import unescape

SPACE = r"\t\n\f\r "
"""ASCII whitespace of HTML: no vertical tab."""


NAME = rf"[^{SPACE}/>\0][^{SPACE}/>=\0]*+"
EQUALS = f"[{SPACE}]*+=[{SPACE}]*+"
_VALUE = rf"""{EQUALS}(?:"([^"\0]*+)"?|'([^'\0]*+)'?|([^{SPACE}>\0]*+))"""
ANY_VALUE = rf"""{EQUALS}(?:"[^"\0]*+"?|'[^'\0]*+'?|[^{SPACE}>\0]*+)"""
_ATTRIBUTE = re.compile(f"({NAME})(?:{_VALUE})?".encode())


def attributes(written: bytes) -> dict[bytes, bytes]:
    """The attributes in `written` by their names in lower case; the first of a name counts. Values are as written."""
    found: dict[bytes, bytes] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(written):
        found.setdefault(name.lower(), double or single or bare)
    return found


_REFERENCE = re.compile(r"&(?:#(?:[0-9]+|[xX][0-9a-fA-F]+);?|[A-Za-z0-9]++(?:;|(?!=)))")
"""In attributes, `&copy=1` and `&copyright` are no references (HTML 13.2.5.73)."""


def _referred(match: re.Match[str]) -> str:
    written = match[0]
    return unescape(written) if written[1] == "#" else html5.get(written[1:], written)


def attribute_text(value: bytes, codec: str) -> str:
    """An attribute's `value` as text; or several, with something between them that is no letter, digit, or `=`."""
    text = value.decode(codec, "replace")
    return _REFERENCE.sub(_referred, text) if "&" in text else text
