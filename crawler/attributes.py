"""The attributes of a start tag, as octets and as text. Pure."""

from __future__ import annotations

import re
from html import unescape
from html.entities import html5

import pcre2  # type: ignore[import-untyped]

SPACE = r"\t\n\f\r "
"""ASCII whitespace of HTML: no vertical tab."""


_NAME = rf"[^{SPACE}/>\0][^{SPACE}/>=\0]*+"
_EQUALS = f"[{SPACE}]*+=[{SPACE}]*+"
_VALUE = rf"""{_EQUALS}(?:"([^"\0]*+)"?|'([^'\0]*+)'?|([^{SPACE}>\0]*+))"""
_ANY_VALUE = rf"""{_EQUALS}(?:"[^"\0]*+"?|'[^'\0]*+'?|[^{SPACE}>\0]*+)"""
_ATTRIBUTE = re.compile(f"({_NAME})(?:{_VALUE})?".encode())

_GAP = f"[{SPACE}/]*+"
_IS_HREF = "(?i:href)"


def _to_hash(ends: str) -> str:
    """A value without the octets `ends`, taken up to its `#`. The one of a character reference (`&#38;`) is none."""
    return f"((?:[^#&{ends}]++|&#?+)*+#?+)[^{ends}]*+"


_DOUBLE, _SINGLE, _BARE = map(_to_hash, (r'"\0', r"'\0", rf"{SPACE}>\0"))
_TARGET = rf"""{_EQUALS}(?:"{_DOUBLE}"?|'{_SINGLE}'?|{_BARE})"""
_HREF = pcre2.compile(
    rf"\0(?:{_GAP}(?!{_IS_HREF}[{SPACE}=]){_NAME}(?:{_ANY_VALUE})?)*+(?:{_GAP}{_IS_HREF}{_TARGET})?+[^\0]*+".encode()
)


def attributes(written: bytes) -> dict[bytes, bytes]:
    """The attributes in `written` by their names in lower case; the first of a name counts. Values are as written."""
    found: dict[bytes, bytes] = {}
    for name, double, single, bare in _ATTRIBUTE.findall(written):
        found.setdefault(name.lower(), double or single or bare)
    return found


def hrefs_of(lists: bytes) -> bytes:
    """The values of the attribute `href` in `lists`, the attributes of one link each; a NUL stands before each list, and
    before each value. A value ends with its `#`, as pages of documentation lead to many parts of another; it is empty for a
    list without one. One call for all links of a page."""
    hrefs: bytes = _HREF.sub(b"\0$1$2$3", lists)
    return hrefs


_REFERENCE = re.compile(r"&(?:#(?:[0-9]+|[xX][0-9a-fA-F]+);?|[A-Za-z0-9]++(?:;|(?!=)))")
"""In attributes, `&copy=1` and `&copyright` are no references (HTML 13.2.5.73)."""


def _referred(match: re.Match[str]) -> str:
    written = match[0]
    return unescape(written) if written[1] == "#" else html5.get(written[1:], written)


def attribute_text(value: bytes, codec: str) -> str:
    """An attribute's `value` as text; or several, with something between them that is no letter, digit, or `=`."""
    text = value.decode(codec, "replace")
    return _REFERENCE.sub(_referred, text) if "&" in text else text
