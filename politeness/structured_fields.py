"""Reads dictionaries of structured fields (RFC 9651, Structured Field Values for HTTP). Pure.

Only tokens have a meaning here, so a dictionary is checked as a whole, as the standard demands, but no values are built of
the other types. One regular expression reads a member, and no repetition gives back what it matched, so the time is linear.
The library http-sf takes eight times as long. That would not matter for a header of 20 bytes, but a site may send 64 KiB of
them, which are read in the event loop, or a robots.txt of 512 KiB.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_KEY = rb"[a-z*][a-z0-9_.*-]*+"
_TOKEN = rb"[A-Za-z*][!#$%&'*+.^_`|~0-9A-Za-z:/-]*+"
_NEXT = rb"%[89ab][0-9a-f]"  # a byte of UTF-8 that continues a character (RFC 3629 4)
_CHARACTERS = (
    rb"[ !#$&-~]|%[0-7][0-9a-f]|%(?:c[2-9a-f]|d[0-9a-f])N|%e0%[ab][0-9a-f]N|%e[1-9a-cef]NN|%ed%[89][0-9a-f]N|"
    rb"%f0%[9ab][0-9a-f]NN|%f[1-3]NNN|%f4%8[0-9a-f]NN"
).replace(b"N", _NEXT)
_OTHER = b"|".join(
    (
        rb"-?[0-9]{1,12}\.[0-9]{1,3}",  # RFC 9651 4.2.4, decimals; then integers
        rb"-?[0-9]{1,15}",
        rb'"(?:[ !#-\[\]-~]|\\["\\])*+"',  # 4.2.5, strings
        rb":[A-Za-z0-9+/]*+=*+:",  # 4.2.7, byte sequences
        rb"\?[01]",  # 4.2.8, booleans
        rb"@-?[0-9]{1,15}",  # 4.2.9, dates
        rb'%"(?:' + _CHARACTERS + rb')*+"',  # 4.2.10, display strings
    )
)
_PARAMETERS = rb"(?:; *+" + _KEY + rb"(?:=(?:" + _TOKEN + b"|" + _OTHER + rb"))?+)*+"
_ITEM = rb"(?:" + _TOKEN + b"|" + _OTHER + b")" + _PARAMETERS
_INNER_LIST = rb"\( *+(?:" + _ITEM + rb"(?: ++|(?=\))))*+\)"  # 4.2.1.2
_MEMBER: Final = (
    rb"(" + _KEY + rb")(?:=(?:(" + _TOKEN + b")|" + _INNER_LIST + b"|" + _OTHER + rb"))?+" + _PARAMETERS +
    # A comma must be followed by another member (4.2.2, step 2.9).
    rb"[ \t]*+(?:,[ \t]*+(?!\Z)|\Z)"
)  # fmt: skip


@cache  # no command needs it, and few sites
def _member() -> re.Pattern[bytes]:
    return re.compile(_MEMBER)


def tokens(dictionary: bytes) -> dict[bytes, bytes] | None:
    """The members of `dictionary`: key -> its token, or empty if its value is of another type. If a key occurs several
    times, the last one counts. None if this is not a dictionary (RFC 9651 4.2). Parameters are left out."""
    members: dict[bytes, bytes] = {}
    data = dictionary.strip(b" ")
    at, match = 0, _member().match
    while at < len(data):
        member = match(data, at)
        if member is None:
            return None
        members[member[1]] = member[2] or b""
        at = member.end()
    return members
