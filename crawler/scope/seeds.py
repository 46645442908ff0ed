"""Parses seed lists, which have one URL per line. Pure. seeds/README.md describes the format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

import msgspec

from frontier.entries import MOST_PRIORITY
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, Url, UrlRules, canonicalize

_COMMENT = re.compile(r"(?:^|\s)#.*")
_HAS_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?![0-9]+(?:[/?#]|$))", re.IGNORECASE)
"""Matches a scheme. The colon must not be followed by a port: `example.com:8080` has no scheme."""

_LACKS_COLON = re.compile(r"https?;?//?[^/]", re.IGNORECASE)
"""Matches `http//example.com`, which would be the path of a host `http`."""

_EMAIL_ADDRESS = re.compile(r"[^/?#:@]+@[^/?#:@]+")
"""Matches what would be the URL of a host with a user name."""

_HOST = re.compile(r"[a-z0-9._:-]*[a-z0-9][a-z0-9._:-]*")
"""Matches hosts that can exist, and IPv6 addresses."""

_PORT = re.compile(r"(?:[a-z]+://)?(?:[^/?#:\[\]]+|\[[^\]]*\]):([^/?#]+)", re.IGNORECASE)
"""Matches the beginning of a location with a port, to see why its host and port are not valid."""


class Seed(msgspec.Struct, frozen=True):
    """A seed URL. `priority`: None if the list gives none; `line`: line number from 1; `text`: the line without its
    comment. `has_scheme`: whether the list gives it; otherwise see `with_scheme`."""

    url: Url
    priority: float | None
    line: int
    text: str
    has_scheme: bool = True


class BadSeedLine(msgspec.Struct, frozen=True):
    """A line that is not a valid seed. `reason`: that of BadUrl (`scheme`, `host`, `length`, `syntax`), `priority`,
    `option`, `colon` if that of a scheme is missing, `comma` if the host has one, `port`, or `email`."""

    line: int
    text: str
    reason: str


def read_seeds(lines: Iterable[str], rules: UrlRules = DEFAULT_RULES) -> tuple[list[Seed], list[BadSeedLine]]:
    """The seeds in `lines`, and the invalid lines. An invalid line does not affect the others."""
    seeds: list[Seed] = []
    errors: list[BadSeedLine] = []
    for number, line in enumerate(lines, 1):
        text = _COMMENT.sub("", line.lstrip("\ufeff").strip()).strip()
        if not text:
            continue
        try:
            seeds.append(_seed(text, number, rules))
        except BadUrl as error:
            errors.append(BadSeedLine(number, text, error.reason))
    return seeds, errors


def _seed(text: str, line: int, rules: UrlRules) -> Seed:
    location, *options = text.split()
    url = url_named(location, rules)
    priority: float | None = None
    for option in options:
        name, _, value = option.partition("=")
        if name != "priority":
            raise BadUrl(text, "option")
        priority = _priority(text, value)
    return Seed(url, priority, line, text, has_scheme(location))


def url_named(location: str, rules: UrlRules = DEFAULT_RULES) -> Url:
    """The URL that a user means by `location`, a URL with or without a scheme, wherever it is given: as a seed, or as an
    argument of a command. Raises BadUrl, also with the reasons `colon`, `comma`, `port` and `email` of `BadSeedLine`."""
    if _LACKS_COLON.match(location):
        raise BadUrl(location, "colon")
    if _EMAIL_ADDRESS.fullmatch(location):
        raise BadUrl(location, "email")
    try:
        url = canonicalize(location if has_scheme(location) else with_scheme(location), rules=rules)
    except BadUrl as error:
        raise BadUrl(location, "port" if error.reason == "host" and _has_bad_port(location) else error.reason) from None
    parts = urlsplit(url.origin)
    if "," in url.origin:  # valid in a host by the URL standard, but not in the DNS; a line of a table
        raise BadUrl(location, "comma")
    if parts.port == 0:
        raise BadUrl(location, "port")
    # Quoted, with two schemes, or with a character that does not show: https://https://example.com
    if not _HOST.fullmatch(parts.hostname or "") or parts.hostname in ("http", "https"):
        raise BadUrl(location, "host")
    return url


def _has_bad_port(location: str) -> bool:
    found = _PORT.match(location)
    port = found[1].lstrip("0") if found else "1"
    return not (port.isdecimal() and len(port) <= len("65535") and int(port) < 1 << 16)


def has_scheme(location: str) -> bool:
    return _HAS_SCHEME.match(location) is not None


def with_scheme(location: str) -> str:
    """Return `location`, which has no scheme, with one: https, or http for an IP address, localhost, and a port, unless
    it is 443. Servers of one's own, which are addressed like this, seldom have a certificate. Raises BadUrl."""
    rest = location.removeprefix("//")
    if rest.startswith("/"):  # a path; by the URL standard, its first part would be the host
        raise BadUrl(location, "host")
    parts = urlsplit(canonicalize(f"https://{rest}").origin)
    host = parts.hostname or ""
    if re.match(r"[^/?#]*:443(?![^/?#])", rest):
        return f"https://{rest}"
    is_own = parts.port is not None or host == "localhost" or host.endswith(".localhost") or _is_address(host)
    return f"{'http' if is_own else 'https'}://{rest}"


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _priority(text: str, value: str) -> float:
    try:
        priority = float(value)
    except ValueError:
        raise BadUrl(text, "priority") from None
    if not -MOST_PRIORITY <= priority <= MOST_PRIORITY:
        raise BadUrl(text, "priority")
    return priority
