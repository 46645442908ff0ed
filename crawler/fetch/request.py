"""The head of a request as it goes on the wire, and the origin that it goes to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import msgspec
from aiohttp.client_reqrep import ConnectionKey
from yarl import URL

from crawler.errors import FailureKind, FetchFailed

_BREAKS_TARGET = re.compile(r"[\x00-\x20\x7f]")
_BREAKS_FIELD = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""RFC 9110 5.5: a value with one of these, which a server may have chosen, could end its line and begin another."""


Signer = Callable[[str, str, float], bytes]
"""Returns the header lines that sign a GET for an authority (as in the Host field) and a target, at a time in seconds since
1970."""

REMEMBERED = 4_096
"""Origins, about a kilobyte each. Pages of a site follow each other."""


class Origin(msgspec.Struct, frozen=True):
    """Scheme, host and port. `authority` is the value of the Host header, and `host_line` the line."""

    url: URL
    key: ConnectionKey  # the key of aiohttp's pool of idle connections
    authority: str
    host_line: bytes

    @classmethod
    @lru_cache(maxsize=REMEMBERED)
    def parse(cls, text: str) -> Origin:
        """From a canonical URL without its path. Raises FetchFailed: BAD_URL."""
        scheme, _, authority = text.partition("://")
        authority = authority.rpartition("@")[2]  # userinfo never leaves this machine
        try:
            url = URL.build(scheme=scheme, authority=authority, encoded=True)
            host, port = url.raw_host, url.port
            named = url.host_port_subcomponent or ""
            host_line = header_lines([("Host", named)])
        except ValueError as error:
            raise FetchFailed(FailureKind.BAD_URL, str(error)) from error
        if not host or scheme not in ("http", "https"):
            raise FetchFailed(FailureKind.BAD_URL, "not a canonical http or https URL")
        key = ConnectionKey(
            host=host,
            port=port,
            is_ssl=scheme == "https",
            ssl=True,  # the connector's own context
            proxy=None,
            proxy_auth=None,
            proxy_headers_hash=None,
        )
        return cls(url, key, named, host_line)

    def request_head(self, target: str, fields: bytes, extra: Iterable[tuple[str, str]] = ()) -> bytes:
        """A GET of `target`, byte for byte, with the header lines `fields` and the fields `extra`. Raises FetchFailed:
        BAD_URL.
        """
        if _BREAKS_TARGET.search(target):
            raise FetchFailed(FailureKind.BAD_URL, "a space or a control character in the path")
        try:
            parts = (target.encode(), self.host_line, fields, header_lines(extra))
        except ValueError as error:
            raise FetchFailed(FailureKind.BAD_URL, str(error)) from error
        return b"GET %b HTTP/1.1\r\n%b%b%b\r\n" % parts


def header_lines(fields: Iterable[tuple[str, str]]) -> bytes:
    """`fields` as header lines. Raises ValueError for a field that would not stay in its line."""
    lines = []
    for name, value in fields:
        if _BREAKS_FIELD.search(name) or _BREAKS_FIELD.search(value):
            raise ValueError(f"a control character in the header field {name!r}")
        lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode()
