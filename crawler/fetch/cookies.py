"""The cookies that sites have set, in the memory of this replica: a jar for each registrable domain.

aiohttp's `CookieJar` parses and matches them (RFC 6265). A cookie never leaves the jar of its domain, so none reaches
another site, whatever its Domain attribute says. What RFC 6265bis adds is checked here, before the jar sees a cookie: one
for a public suffix, one with `Secure` over plain http, and the prefixes `__Secure-` and `__Host-`.

Number and size are limited in each jar and in all of them. Beyond that, the oldest cookies go, and the jars that were not
used for the longest time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiohttp import CookieJar
from yarl import URL

from frontier.domains import domain_of

MAX_COOKIES, MAX_BYTES = 50, 8 * 1024
"""Of a domain: as many cookies as RFC 6265 6.1 asks for, and as many bytes of names and values as `CookieJar` sends."""

MAX_ALL_COOKIES, MAX_ALL_BYTES = 20_000, 4 * 1024 * 1024
"""Of all domains together. A cookie takes about 2 kB of memory besides its bytes."""

_NAME = re.compile(r"[!#-+\--:<-\[\]-~]+")
"""What the jar accepts as a name. It would log the others, as often as a site sends one."""


class _Jar:
    """The cookies of one domain. `count` and `size`: how many, and the bytes of their names and values."""

    def __init__(self) -> None:
        # `unsafe`: also for hosts that are addresses, which have jars of their own.
        self.cookies = CookieJar(unsafe=True, quote_cookie=False)
        self.count = self.size = 0

    def add(self, headers: list[str], url: URL) -> None:
        self.cookies.update_cookies_from_headers(headers, url)
        for kept in self.cookies:
            # The jar would send the value without the quotes that the site has set. RFC 6265 5.2 keeps them.
            if kept.value != (as_set := kept.coded_value):
                # Unlike `set`, this allows all names that the jar does.
                kept.__setstate__({"key": kept.key, "value": as_set, "coded_value": as_set})  # type: ignore[attr-defined]
        sizes = {id(one): len(one.key) + len(one.coded_value) for one in self.cookies}
        count, size = len(sizes), sum(sizes.values())
        dropped = set[int]()
        for one, length in sizes.items():  # the oldest first
            if count <= MAX_COOKIES and size <= MAX_BYTES:
                break
            dropped.add(one)
            count, size = count - 1, size - length
        if dropped:
            self.cookies.clear(lambda one: id(one) in dropped)
        self.count, self.size = count, size


class Cookies:
    """The cookies of a replica."""

    def __init__(self) -> None:
        self._jars: dict[str, _Jar] = {}  # by domain, the last used at the end
        self._count = self._size = 0

    def __repr__(self) -> str:
        return f"<Cookies {self._count} of {len(self._jars)} domains>"

    def value(self, url: str, host: str) -> str:
        """Return the value of the Cookie field of a request for `url` at `host`, empty if there are no cookies for it."""
        domain = domain_of(host)
        jar = self._jars.pop(domain, None)
        if jar is None:
            return ""
        self._jars[domain] = jar
        found = jar.cookies.filter_cookies(URL(url, encoded=True))
        return "; ".join(f"{name}={one.value}" for name, one in found.items())

    def received(self, url: str, host: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep the cookies in the `headers` of a response to a request for `url` at `host`."""
        # The jar drops what is not UTF-8.
        texts = [value.decode(errors="surrogateescape") for name, value in headers if name.lower() == b"set-cookie"]
        if not texts:
            return
        domain, address = domain_of(host), URL(url, encoded=True)
        if accepted := [text for text in texts if _is_acceptable(text, domain, address.scheme == "https")]:
            jar = self._jars.pop(domain, None) or _Jar()
            self._count, self._size = self._count - jar.count, self._size - jar.size
            jar.add(accepted, address)
            self._jars[domain] = jar
            self._count, self._size = self._count + jar.count, self._size + jar.size
            self._limit()

    def _limit(self) -> None:
        while self._count > MAX_ALL_COOKIES or self._size > MAX_ALL_BYTES:
            oldest = self._jars.pop(next(iter(self._jars)))
            self._count, self._size = self._count - oldest.count, self._size - oldest.size


def _is_acceptable(text: str, domain: str, is_secure: bool) -> bool:
    """Whether the value `text` of a Set-Cookie field may be kept for `domain` (RFC 6265bis 5.7)."""
    pair, *parts = text.split(";")
    name = pair.partition("=")[0].strip().lower()
    if not _NAME.fullmatch(name):
        return False
    attributes = {key.strip().lower(): value.strip() for key, _, value in (part.partition("=") for part in parts)}
    within = attributes.get("domain", "").removeprefix(".").lower()
    if within and within != domain and not within.endswith(f".{domain}"):
        return False  # above the registrable domain there are only public suffixes; others are not of this site
    if "secure" in attributes and not is_secure:
        return False
    if name.startswith("__secure-"):
        return "secure" in attributes
    if name.startswith("__host-"):
        return "secure" in attributes and not within and attributes.get("path") == "/"
    return True
