"""Rewrites XHTML so that it means the same when it is read as HTML. Pure.

Links would be lost where XML and HTML disagree: in XML, `<script/>` has no content, comments and CDATA sections also
count inside `script` and `style`, and a processing instruction may contain `>`. An XML parser would reject the many pages
that are not well-formed, so they are read as HTML, which always gives a result.
"""

from __future__ import annotations

import re

from crawler.parse.attributes import ANY_VALUE, NAME, SPACE

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
