"""Parses seed lists, which have one URL per line. Pure. seeds/README.md describes the format."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import ip_address
from itertools import chain
from urllib.parse import urlsplit
from zlib import compress, decompress

import msgspec

from frontier.entries import MOST_PRIORITY
from frontier.errors import BadUrl
from frontier.urls import DEFAULT_RULES, Url, UrlRules, canonicalize, origin_of

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


_QUOTES = "\"'\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a<>"
"""What word processors and programs put around a URL."""

_NAMES_OF_URLS = frozenset(
    {"url", "urls", "link", "domain", "domains", "host", "hostname", "site", "website", "homepage"}
)
"""Names of columns that have seeds."""

_LIKE_A_SITE = re.compile(r"(?:https?://\S+|(?:[\w-]+\.)+[^\W\d_]{2,}(?:[:/]\S*)?)", re.IGNORECASE)
_OPTION = re.compile(r"priority=|#")

_BLOCK = 5_000  # seeds


class Seed(msgspec.Struct, frozen=True):
    """A seed URL. `priority`: None if the list gives none; `line`: line number from 1; `text`: the line without its
    comment. `has_scheme`: whether the list gives it; otherwise see `with_scheme`. `tag`: what a program attaches to it
    (`frontier.entries`)."""

    url: Url
    priority: float | None
    line: int
    text: str
    has_scheme: bool = True
    tag: str = ""


class BadSeedLine(msgspec.Struct, frozen=True):
    """A line that is not a valid seed. `reason`: that of BadUrl (`scheme`, `host`, `length`, `syntax`), `priority`,
    `option`, `encoding`, `colon` if that of a scheme is missing, `comma` if the host has one, `port`, or `email`."""

    line: int
    text: str
    reason: str


class SeedList:
    """Seeds in the order in which they were added. A million of them take 20 MB: they are kept as compressed texts, and
    made again when they are iterated over."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._rows: list[str] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Seed]:
        for rows in chain((decompress(block).decode().split("\n") for block in self._blocks), [self._rows]):
            for row in rows:
                href, domain, priority, line, has_scheme, text = row.split("\t")
                url = Url(href, domain, origin_of(href))
                yield Seed(url, float(priority) if priority else None, int(line), text or href, bool(has_scheme))

    def add(self, seed: Seed) -> None:
        text = "" if seed.text == seed.url.href else " ".join(seed.text.split())
        priority = "" if seed.priority is None else repr(seed.priority)
        has_scheme = "1" if seed.has_scheme else ""
        self._rows.append("\t".join((seed.url.href, seed.url.domain, priority, str(seed.line), has_scheme, text)))
        self._count += 1
        if len(self._rows) == _BLOCK:
            self._blocks.append(compress("\n".join(self._rows).encode(), 1))
            self._rows = []


def read_seeds(lines: Iterable[str], rules: UrlRules = DEFAULT_RULES) -> tuple[list[Seed], list[BadSeedLine]]:
    """The seeds in `lines`, and the invalid lines. An invalid line does not affect the others."""
    read = list(each_seed(lines, rules))
    return [one for one in read if isinstance(one, Seed)], [one for one in read if isinstance(one, BadSeedLine)]


def each_seed(lines: Iterable[str], rules: UrlRules = DEFAULT_RULES) -> Iterator[Seed | BadSeedLine]:
    """What `read_seeds` returns, in the order of the lines."""
    for number, line in enumerate(lines, 1):
        text = _COMMENT.sub("", line.lstrip("\ufeff").strip()).strip()
        if not text:
            continue
        try:
            yield _seed(text, number, rules)
        except BadUrl as error:
            yield BadSeedLine(number, text, error.reason)


def table_of(sample: Sequence[str]) -> tuple[str, int] | None:
    """The delimiter and the number of the column of URLs, from 0, if the lines of a `sample` are those of a table, such as
    a list of domains with their ranks. None for a seed list: a comma in a URL is no delimiter."""
    rows = [line for line in sample if line.strip() and not line.lstrip().startswith("#")]
    for delimiter in ",;\t":
        table = list(csv.reader(rows, delimiter=delimiter))
        if len(table) < 1 or min(map(len, table)) < 2:
            continue
        head = [cell.strip().strip("\ufeff").lower() for cell in table[0]]
        if (named := next((at for at, cell in enumerate(head) if cell in _NAMES_OF_URLS), None)) is not None:
            return delimiter, named
        is_quoted = all(row.lstrip("\ufeff ").startswith('"') for row in rows)
        columns = range(min(map(len, table)))
        urls = [at for at in columns if all(_LIKE_A_SITE.fullmatch(row[at].strip()) for row in table)]
        if urls and (urls[0] > 0 or is_quoted or (delimiter == "\t" and not _OPTION.match(table[0][1]))):
            return delimiter, urls[0]
    return None


def column_of(lines: Iterable[str], delimiter: str, at: int) -> Iterator[str]:
    """The cells of the column `at` of a table, one for each line, "" if it has none. The name of the column is left out."""
    for row in csv.reader(lines, delimiter=delimiter):
        cell = row[at].strip() if at < len(row) else ""
        yield "" if cell.lower() in _NAMES_OF_URLS else cell


def _seed(text: str, line: int, rules: UrlRules) -> Seed:
    location, *options = text.split()
    location = location.strip(_QUOTES)
    if not location or "\ufffd" in location:
        raise BadUrl(text, "encoding" if location else "syntax")
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
