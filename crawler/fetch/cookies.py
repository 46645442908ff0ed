"""The cookies that sites have set, in the memory of this replica: a jar for each registrable domain.

They are parsed and matched as browsers do it (RFC 6265bis 5.6 to 5.8), and sent back byte for byte. A cookie never leaves
the jar of its domain, so none reaches another site, whatever its Domain attribute says.

A jar may start with the Cookie field of a rule. The site can replace or remove these cookies. As the rule may have named a
secret for one origin, they are sent only with requests to which it applies.

Number and size are limited in each jar and in all of them. Beyond that, the oldest cookies go, and the jars that were not
used for the longest time.

Python's and aiohttp's jars read headers in other ways: of the IETF's 222 tests, they fail 30 and more.
"""

from __future__ import annotations

import re
import time
from calendar import timegm
from collections.abc import Callable, Iterable

import msgspec

from frontier.domains import domain_of

MAX_COOKIES, MAX_BYTES = 50, 8 * 1024
"""Of a domain: as many cookies as RFC 6265 6.1 asks for, and bytes of names and values that most servers accept."""

MAX_ALL_COOKIES, MAX_ALL_BYTES = 20_000, 4 * 1024 * 1024
"""Of all domains together. A cookie takes about a kilobyte of memory besides its bytes."""

MAX_PAIR, MAX_ATTRIBUTE = 4096, 1024
"""RFC 6265bis 5.6: characters of name and value of a cookie, and of the value of an attribute."""

_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_SPACE = " \t"
_SECONDS = re.compile(r"-?[0-9]{1,18}")


class _Cookie(msgspec.Struct):
    """`domain`: host to which it is sent, with its subdomains unless `is_host_only`. `expires_at`: seconds since 1970.
    `start`: the Cookie field of a rule that it comes from, empty if the site has set it."""

    name: str
    value: str
    domain: str
    path: str = "/"
    is_host_only: bool = True
    is_secure: bool = False
    expires_at: float = float("inf")
    start: str = ""

    @property
    def size(self) -> int:
        return len(self.name) + len(self.value)

    def is_for(self, host: str, path: str, is_secure: bool) -> bool:
        """Whether it is sent with a request for `path` at `host` (RFC 6265bis 5.8.3)."""
        if host != self.domain and (self.is_host_only or not host.endswith(f".{self.domain}")):
            return False
        if self.is_secure and not is_secure:
            return False
        return path == self.path or path.startswith(self.path if self.path.endswith("/") else f"{self.path}/")


class _Jar:
    """The cookies of one domain, the oldest first. `size`: bytes of their names and values. `starts`: the Cookie fields of
    rules that it has taken up."""

    def __init__(self) -> None:
        self.cookies: dict[tuple[str, str, str, bool], _Cookie] = {}
        self.size = 0
        self.starts: set[tuple[str, str]] = set()

    def add(self, new: _Cookie, now: float) -> None:
        if not new.start:
            for key in [key for key, one in self.cookies.items() if one.start and one.name == new.name]:
                del self.cookies[key]
        key = (new.name, new.domain, new.path, new.is_host_only)
        if new.expires_at <= now:
            self.cookies.pop(key, None)
        else:
            self.cookies[key] = new  # at the place of the one that it replaces (RFC 6265bis 5.7, step 23)
        self.size = sum(one.size for one in self.cookies.values())
        while len(self.cookies) > MAX_COOKIES or self.size > MAX_BYTES:
            self.size -= self.cookies.pop(next(iter(self.cookies))).size


class Cookies:
    """The cookies of a replica. `wall` returns seconds since 1970."""

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._jars: dict[str, _Jar] = {}  # by domain, the last used at the end
        self._count = self._size = 0

    def __repr__(self) -> str:
        return f"<Cookies {self._count} of {len(self._jars)} domains>"

    def value(self, url: str, host: str, start: str = "") -> str:
        """Return the value of the Cookie field of a request for `url` at `host`, empty if there are no cookies for it.
        `start`: that of the rules for this request, with which the jar starts."""
        domain = domain_of(host)
        if start and (domain not in self._jars or (host, start) not in self._jars[domain].starts):
            pairs = [pair.strip(_SPACE).partition("=") for pair in start.split(";")]
            self._add(domain, [_Cookie(name, value, host, start=start) for name, _, value in pairs if name])
            if domain in self._jars:
                self._jars[domain].starts.add((host, start))
        jar = self._jars.pop(domain, None)
        if jar is None:
            return ""
        self._jars[domain] = jar
        now, (path, is_secure) = self._wall(), _place(url)
        found = [
            one
            for one in jar.cookies.values()
            if one.expires_at > now and one.start in ("", start) and one.is_for(host, path, is_secure)
        ]
        found.sort(key=lambda one: -len(one.path))  # RFC 6265bis 5.8.3: the longest path first, then the oldest
        return "; ".join(f"{one.name}={one.value}" if one.name else one.value for one in found)

    def received(self, url: str, host: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Keep the cookies in the `headers` of a response to a request for `url` at `host`."""
        texts = [value.decode(errors="surrogateescape") for name, value in headers if name.lower() == b"set-cookie"]
        if texts:
            now, (path, is_secure) = self._wall(), _place(url)
            found = (_parsed(text, host, path, is_secure, now) for text in texts)
            self._add(domain_of(host), [one for one in found if one is not None])

    def _add(self, domain: str, cookies: list[_Cookie]) -> None:
        if not cookies:
            return
        jar, now = self._jars.pop(domain, None) or _Jar(), self._wall()
        self._count, self._size = self._count - len(jar.cookies), self._size - jar.size
        for cookie in cookies:
            jar.add(cookie, now)
        self._jars[domain] = jar
        self._count, self._size = self._count + len(jar.cookies), self._size + jar.size
        while self._count > MAX_ALL_COOKIES or self._size > MAX_ALL_BYTES:
            oldest = self._jars.pop(next(iter(self._jars)))
            self._count, self._size = self._count - len(oldest.cookies), self._size - oldest.size


def _place(url: str) -> tuple[str, bool]:
    """The path of the canonical `url`, and whether it is https."""
    scheme, _, rest = url.partition("://")
    _, slash, target = rest.partition("/")
    return (slash + target.partition("?")[0]) or "/", scheme == "https"


def _parsed(text: str, host: str, path: str, is_secure: bool, now: float) -> _Cookie | None:
    """The cookie in a Set-Cookie field with the value `text`, of the response to a request for `path` at `host`. None for
    one that must not be kept (RFC 6265bis 5.6 and 5.7)."""
    pair, *parts = text.split(";")
    name, equals, value = (part.strip(_SPACE) for part in pair.partition("="))
    if not equals:
        name, value = "", name
    if _CONTROLS.search(text) or not name + value or len(name) + len(value) > MAX_PAIR:
        return None
    attributes: dict[str, str] = {}  # the last one of each counts
    for key, _, content in (part.partition("=") for part in parts):
        key, content = key.strip(_SPACE).lower(), content.strip(_SPACE)
        if len(content) <= MAX_ATTRIBUTE and (content or key not in ("domain", "expires", "max-age")):
            attributes[key] = content
    within = attributes.get("domain", "").removeprefix(".").lower()
    if within and not _may_set(host, within):
        return None
    written = attributes.get("path", "")
    cookie = _Cookie(
        name,
        value,
        within or host,
        written if written.startswith("/") else path[: path.rfind("/")] or "/",
        not within,
        "secure" in attributes,
        _expiry(attributes, now),
    )
    if cookie.is_secure and not is_secure:
        return None
    is_of_host = cookie.is_secure and not within and written == "/"
    prefixed = (name or value).lower()  # a cookie without a name must not pass for one with such a prefix
    if (prefixed.startswith("__secure-") and not (name and cookie.is_secure)) or (
        prefixed.startswith("__host-") and not (name and is_of_host)
    ):
        return None
    return cookie


def _may_set(host: str, domain: str) -> bool:
    """Whether `host` may set cookies for `domain`: above the registrable domain there are only public suffixes."""
    if host == domain:
        return True
    site = domain_of(host)
    return host.endswith(f".{domain}") and (domain == site or domain.endswith(f".{site}"))


def _expiry(attributes: dict[str, str], now: float) -> float:
    if _SECONDS.fullmatch(age := attributes.get("max-age", "")):
        return now + int(age)
    expires = _date(attributes.get("expires", ""))
    return float("inf") if expires is None else expires


_DATE_PARTS = re.compile(r"[^\t\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+")  # RFC 6265bis 5.6.1: between delimiters
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?!\d)", re.ASCII)
_DAY = re.compile(r"(\d{1,2})(?!\d)", re.ASCII)
_YEAR = re.compile(r"(\d{2,4})(?!\d)", re.ASCII)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def _date(text: str) -> float | None:
    """Seconds since 1970 of a date in a cookie; None if it is none (RFC 6265bis 5.6.1)."""
    clock = day = month = year = None
    for part in _DATE_PARTS.findall(text):
        if clock is None and (clock := _TIME.match(part)):
            continue
        if day is None and (day := _DAY.match(part)):
            continue
        if month is None and part[:3].lower() in _MONTHS:
            month = _MONTHS.index(part[:3].lower()) + 1
        elif year is None:
            year = _YEAR.match(part)
    if clock is None or day is None or month is None or year is None:
        return None
    number = int(year[1])
    number += 1900 if 70 <= number <= 99 else 2000 if number <= 69 else 0
    hour, minute, second = map(int, clock.groups())
    if number < 1601 or not 1 <= int(day[1]) <= 31 or hour > 23 or minute > 59 or second > 59:
        return None
    return float(timegm((number, month, int(day[1]), hour, minute, second)))
