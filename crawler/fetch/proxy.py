"""A proxy between the replica and sites, as the operator names it.

An HTTP or HTTPS proxy gets plain requests in the absolute form (RFC 9112 3.2.2), and opens a tunnel for https (CONNECT, RFC
9110 9.3.6). A SOCKS5 proxy (RFC 1928) opens a connection for both, to the name of the host.
"""

from __future__ import annotations

import re
from base64 import b64encode
from urllib.parse import unquote, urlsplit

import msgspec

from crawler.errors import UserError
from crawler.fetch.request_secret import Secret

PORTS = {"http": 80, "https": 443, "socks5": 1080}
"""The default port of each kind of proxy."""

_NO_HOST = re.compile(r"[^!-~]")

_EXPECTED = "write it as http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT"


class Proxy(msgspec.Struct, frozen=True):
    """A proxy at `host` and `port`. `looks_up`: the proxy alone looks up the names of sites. `user`, `password`: empty if
    it asks for none."""

    scheme: str
    host: str
    port: int
    user: Secret
    password: Secret
    looks_up: bool = False

    @classmethod
    def parse(cls, url: str, looks_up: bool = False) -> Proxy:
        """Parse the URL of a proxy. Raises UserError, which does not repeat it, because it may have a password."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
            user, password = unquote(parts.username or ""), unquote(parts.password or "")
        except ValueError:
            raise UserError(f"is not the URL of a proxy: {_EXPECTED}") from None
        # curl's name for names that the proxy looks up
        scheme = "socks5" if parts.scheme == "socks5h" else parts.scheme
        has_more = parts.path not in ("", "/") or parts.query or parts.fragment
        if scheme not in PORTS or not host or _NO_HOST.search(host) or has_more:
            raise UserError(f"is not the URL of a proxy: {_EXPECTED}")
        if not (user + password).isprintable() or ":" in user:
            raise UserError("has a control character in the user name or password, or a : in the user name")
        return cls(scheme, host, port or PORTS[scheme], Secret(user), Secret(password), looks_up)

    def __str__(self) -> str:
        return f"the proxy {self.scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def forwards(self) -> bool:
        """Whether it reads plain http requests, and does not open a tunnel for them."""
        return self.scheme != "socks5"

    @property
    def key(self) -> tuple[str, int]:
        """What keeps its connections apart from others in aiohttp's pool."""
        return str(self), hash((self.user, self.password))

    @property
    def authorization(self) -> Secret:
        """The header line with which it is asked (RFC 9110 11.7.2), empty if it asks for no credentials."""
        if not self.user:
            return Secret("")
        encoded = b64encode(f"{self.user.text}:{self.password.text}".encode()).decode()
        return Secret(f"Proxy-Authorization: Basic {encoded}\r\n")
