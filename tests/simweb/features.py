"""What a synthetic web has: answers, robots.txt files, attacks and changing pages, each with its share.

Shares are fractions of the *leaves* of a domain (pages without children in its tree), of its pages, or of the domains, as
noted at each field. Every behaviour can be enabled on its own: `replace(Features.plain(), answers={Kind.CUT: 1})`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate, parsedate_to_datetime
from enum import StrEnum
from itertools import accumulate
from typing import Generic, TypeVar

from xxhash import xxh3_64_intdigest

T = TypeVar("T")

_TWO_32 = 1 << 32
_MASK_64 = (1 << 64) - 1


def draw(seed: int, *words: object) -> int:
    """64 bits that depend only on `seed` and `words`, and are the same on every machine (XXH3)."""
    return xxh3_64_intdigest("/".join(map(str, words)).encode(), seed & _MASK_64)


def fraction(bits: int) -> float:
    """The low 32 of `bits` as a number in [0, 1)."""
    return (bits & 0xFFFFFFFF) / _TWO_32


class Shares(Generic[T]):
    """A weighted choice by shares in [0, 1]. `rest` gets the remainder. Raises ValueError if the sum exceeds 1."""

    def __init__(self, shares: Mapping[T, float], rest: T) -> None:
        self._bounds = list(accumulate(shares.values()))
        self._choices = [*shares, rest]
        if any(share < 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-9:
            raise ValueError(f"shares must be positive and add up to at most 1: {dict(shares)}")

    def pick(self, bits: int) -> T:
        """The choice for the low 32 of `bits`."""
        return self._choices[bisect_right(self._bounds, (bits & 0xFFFFFFFF) / _TWO_32)]


class Hazard(StrEnum):
    """What the page /hazard of a hostile domain does; for some, its robots.txt, its sitemap, or all later pages."""

    GZIP_BOMB = "gzip-bomb"  # 128 MiB in 128 KiB
    BROTLI_BOMB = "br-bomb"
    ZSTD_BOMB = "zstd-bomb"
    NESTED_BOMB = "nested-bomb"  # Content-Encoding: gzip, gzip
    ENDLESS_BODY = "endless-body"
    ENDLESS_HEAD = "endless-head"  # header fields without end
    HUGE_FIELD = "huge-field"  # one header field of 4 MiB
    SCRIPTS = "scripts"  # an empty page whose scripts ask for data, fill the memory and never end
    DRIP = "drip"  # one byte a second
    HUGE_CHUNK = "huge-chunk"  # a chunk size beyond 64 bits
    SURPLUS = "surplus"  # a second, unrequested response after the first (Content-Length too small)
    HUGE_LOCATION = "huge-location"  # a redirect to a URL of 1 MiB
    MANY_LINKS = "many-links"  # 100,000 links, all denied by robots.txt
    HUGE_ATTRIBUTE = "huge-attribute"  # an href of 5 MiB
    DEEP_TAGS = "deep-tags"  # 200,000 nested elements
    CIRCLE = "circle"  # redirects back and forth between two domains, always to new URLs
    CALENDAR = "calendar"  # each month links to the next
    SESSIONS = "sessions"  # each page links to itself under three new ids
    DEEPER = "deeper"  # each page links to one a folder deeper
    ROBOTS_BOMB = "robots-bomb"  # robots.txt: its rules, then 128 MiB in 128 KiB
    ROBOTS_ENDLESS = "robots-endless"  # robots.txt: its rules, then comments without end
    ROBOTS_PATTERNS = "robots-patterns"  # robots.txt of 500 KiB: patterns that make a backtracking matcher slow
    SITEMAP_BOMB = "sitemap-bomb"  # XML whose entities expand to 1 GiB
    TRAILERS = "trailers"  # trailer fields without end
    BLANK_LINE = "blank-line"  # a blank line, then 16 MiB that are not a status line
    INTERIM = "interim"  # 1xx responses without end
    UNREQUESTED = "unrequested"  # bytes without end after a complete response
    REFERENCE = "reference"  # character references with numbers of 4,301 digits
    OPEN_TAG = "open-tag"  # a tag of 1.7 MiB that does not end
    SURROGATE = "surrogate"  # JSON-LD with a lone surrogate
    CHARSET = "charset"  # 16,000 spaces after "charset="


TRAPS = frozenset({Hazard.CALENDAR, Hazard.SESSIONS, Hazard.DEEPER})
"""Sites with an unlimited number of pages. Only the crawler's own rules limit what it fetches there."""


class RobotsKind(StrEnum):
    """The response of a host to /robots.txt (RFC 9309 section 2.3)."""

    ABSENT = "absent"  # 404: unavailable, so all is allowed
    FORBIDDEN = "forbidden"  # 403: unavailable too
    ALLOW = "allow"
    FOLDER = "folder"  # denies /private/ but /private/open/, and .pdf
    DENY = "deny"  # denies everything
    DELAY = "delay"  # as FOLDER, with a Crawl-delay
    UNREACHABLE = "unreachable"  # 500 or 503 always, so all is denied
    FLAKY = "flaky"  # 503 twice, then as FOLDER
    MOVED = "moved"  # redirects to a host of another domain, which serves FOLDER for this one
    SHARED = "shared"  # the same, all hosts to one domain
    FIVE_HOPS = "five_hops"  # as FOLDER, at the end of five redirects
    SLOW = "slow"  # as FOLDER, slowly
    LARGE = "large"  # as FOLDER within the first 500 KiB, and more behind them
    GARBAGE = "garbage"  # 200 with bytes that mean nothing, so all is allowed
    BOM = "bom"  # as FOLDER, behind a byte order mark and with CR LF line ends


DENIES_ALL = frozenset({RobotsKind.DENY, RobotsKind.UNREACHABLE})
ALLOWS_ALL = frozenset({RobotsKind.ABSENT, RobotsKind.FORBIDDEN, RobotsKind.ALLOW, RobotsKind.GARBAGE})
FLAKY_FAILURES = 2
HOPS = 5

_FOLDER = """\
# Rules of this host
User-agent: some-other-bot
Disallow: /

User-Agent: *
Disallow: /private/
allow: /private/open/
Disallow: /*.pdf$
"""

_LARGE_BYTES = 700 * 1024


def robots_deny(kind: RobotsKind, target: str) -> bool:
    """Whether a host with this kind of robots.txt denies `target` (path and query) to everyone.

    `UNREACHABLE` denies everything, and `FLAKY` is judged by its final rules. /robots.txt itself is always allowed (RFC
    9309 2.2.2).
    """
    if target == "/robots.txt" or kind in ALLOWS_ALL:
        return False
    if kind in DENIES_ALL:
        return True
    # The longest match wins (RFC 9309 2.2.2), so a PDF in /private/open/ is allowed.
    if target.startswith("/private/open/"):
        return False
    return target.startswith("/private/") or target.endswith(".pdf")


def robots_text(kind: RobotsKind, crawl_delay_s: float, sitemap: str) -> bytes:
    """The text of the file, for kinds with status 200. `sitemap`: a URL, or empty if there is none."""
    if kind is RobotsKind.GARBAGE:
        return bytes(range(256)) * 8
    rules = {
        RobotsKind.ALLOW: "User-agent: *\nDisallow:\n",
        RobotsKind.DENY: "User-agent: *\nDisallow: /\n",
    }.get(kind, _FOLDER)
    if kind is RobotsKind.DELAY:
        rules += f"Crawl-delay: {crawl_delay_s:g}\n"
    if sitemap:
        rules += f"\nSitemap: {sitemap}\n"
    if kind is RobotsKind.BOM:
        return b"\xef\xbb\xbf" + rules.replace("\n", "\r\n").encode()
    if kind is RobotsKind.LARGE:
        rules += "".join(f"Disallow: /nowhere/{n}\n" for n in range(_LARGE_BYTES // 24))
    return rules.encode()


class Change(StrEnum):
    """When a page changes."""

    NEVER = "never"
    POISSON = "poisson"  # at random, independently of the last change
    PERIODIC = "periodic"  # always after the same time
    ALWAYS = "always"  # at each request


class Validity(StrEnum):
    """What the validators of a page are worth (RFC 9110 section 8.8)."""

    ETAG = "etag"
    DATE = "date"  # Last-Modified, in whole seconds
    NONE = "none"
    RESTLESS = "restless"  # another ETag each time
    STUCK = "stuck"  # always the same ETag, so a change is answered with a 304
    WORDY = "wordy"  # an ETag, and 304s that have a body


FIELD = {Validity.DATE: "if-modified-since"}
"""The header field of a conditional request, if it is not If-None-Match."""


@dataclass(frozen=True, slots=True)
class Changing:
    """How the page `url` of a world with `seed` changes: once in `mean_s` seconds on average, if it is at random or
    periodic."""

    seed: int
    url: str
    change: Change
    mean_s: float = math.inf
    validity: Validity = Validity.NONE

    def changed_at(self, now: float) -> float:
        """The last change until `now`, in seconds since 1970; 0 if there was none."""
        if self.change is Change.ALWAYS:
            return now
        if self.change is Change.NEVER:
            return 0.0
        if self.change is Change.PERIODIC:
            return now - (now - self._phase_s) % self.mean_s
        window = int(now // self.mean_s)
        while window >= 0:
            times = [at for at in self._times(window) if at <= now]
            if times:
                return times[-1]
            window -= 1
        return 0.0

    def next_change(self, after: float) -> float:
        """The first change after `after`."""
        if self.change is Change.ALWAYS:
            return after
        if self.change is Change.NEVER:
            return math.inf
        if self.change is Change.PERIODIC:
            return self.changed_at(after) + self.mean_s
        window = int(after // self.mean_s)
        while True:
            times = [at for at in self._times(window) if at > after]
            if times:
                return times[0]
            window += 1

    @property
    def _phase_s(self) -> float:
        return self.mean_s * fraction(draw(self.seed, "phase", self.url))

    def _times(self, window: int) -> list[float]:
        """The changes in a stretch of `mean_s` seconds, of which there is one on average."""
        luck, number = fraction(draw(self.seed, "changes", self.url, window)), 0
        share = least = math.exp(-1)  # of stretches without a change
        while luck > share and number < 20:
            number += 1
            least /= number
            share += least
        places = (fraction(draw(self.seed, "change", self.url, window, n)) for n in range(number))
        return sorted((window + place) * self.mean_s for place in places)

    def text(self, now: float) -> str:
        """Text that differs between versions of the page."""
        return f"version {self.changed_at(now):.6f}"

    def fields(self, now: float) -> dict[str, str]:
        """The validators in a response at `now`."""
        changed_at = self.changed_at(now)
        if self.validity is Validity.NONE:
            return {}
        if self.validity is Validity.DATE:
            return {"Last-Modified": formatdate(int(changed_at), usegmt=True)}
        told = {Validity.RESTLESS: now, Validity.STUCK: 0.0}.get(self.validity, changed_at)
        return {"ETag": f'"{round(told * 1e6):x}"'}

    def is_not_modified(self, now: float, request: Mapping[str, str]) -> bool:
        """Whether the answer at `now` to a request with these fields (in lower case) is a 304."""
        asked = request.get(FIELD.get(self.validity, "if-none-match"))
        if not asked or self.validity is Validity.NONE:
            return False
        if self.validity is not Validity.DATE:
            return asked == self.fields(now)["ETag"]
        try:
            return int(self.changed_at(now)) <= parsedate_to_datetime(asked).timestamp()
        except ValueError:
            return False


class Kind(StrEnum):
    """The response of a numbered page."""

    PAGE = "page"
    MOVED = "moved"  # redirect to a page of the same domain
    MOVED_AWAY = "moved_away"  # redirect to the root of another domain
    CHAIN = "chain"  # 2 to 5 redirects
    LOOP = "loop"  # two URLs that redirect to each other
    SPIN = "spin"  # redirects to ever new URLs
    MISSING = "missing"  # 404
    GONE = "gone"  # 410
    BUSY = "busy"  # 429 or 503 with Retry-After, then the page
    FLAKY = "flaky"  # 500, then the page
    FAILING = "failing"  # 500, always
    SLOW = "slow"  # the page, after `slow_s`
    CUT = "cut"  # the connection closes in the middle of the body
    BINARY = "binary"  # a PDF or a PNG


REDIRECTS = frozenset({Kind.MOVED, Kind.MOVED_AWAY, Kind.CHAIN, Kind.LOOP, Kind.SPIN})

# A page with children must end with a body, or a part of its domain would be unreachable.
HUB_KINDS = frozenset({Kind.PAGE, Kind.BUSY, Kind.FLAKY, Kind.SLOW})


class Coding(StrEnum):
    """Content coding of a body (RFC 9110 section 8.4.1). `RAW_DEFLATE` lacks the zlib wrapper, as some
    servers send it.
    """

    IDENTITY = "identity"
    GZIP = "gzip"
    DEFLATE = "deflate"
    RAW_DEFLATE = "raw_deflate"
    BROTLI = "br"
    ZSTD = "zstd"


class Charset(StrEnum):
    """How a page's text is encoded, and where the encoding is declared."""

    UTF8_HEADER = "utf-8/header"
    UTF8_META = "utf-8/meta"
    UTF8_BOM = "utf-8/bom"
    LATIN1_HEADER = "iso-8859-1/header"
    LATIN1_META = "iso-8859-1/meta"
    SJIS_HEADER = "shift_jis/header"
    SJIS_META = "shift_jis/meta"

    @property
    def encoding(self) -> str:
        """The name of the encoding, as it is declared."""
        return self.value.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """The contents of a world."""

    answers: Mapping[Kind, float] = field(default_factory=dict)  # of the leaves; the rest are pages
    robots: Mapping[RobotsKind, float] = field(default_factory=dict)  # of the hosts; the rest have none (404)
    codings: Mapping[Coding, float] = field(default_factory=dict)  # of the pages; the rest are sent as they are
    charsets: Mapping[Charset, float] = field(default_factory=dict)  # of the pages; the rest are utf-8/header
    hazards: tuple[Hazard, ...] = ()  # one further domain each

    zipf: float = 1.0  # a domain's size is in proportion to 1 / rank ** zipf; 0 makes all equal
    fanout: int = 8  # children of a page in its domain's tree
    links: int = 8  # further links on a page
    abroad: float = 0.2  # share of those that lead to other domains
    body_bytes: tuple[int, int] = (500, 4_000)  # filler of a page, from and to
    articles: bool = False  # products in /shop/ and stories in /news/
    varied: bool = True  # hrefs in all legal spellings, <base>, decoys; else absolute ones only

    private: float = 0.05  # share of the leaves in /private/, which the folder-denying robots.txt deny
    several_hosts: float = 0.0  # share of the domains with www. and blog. beside the bare name
    chunked: float = 0.0  # share of the pages sent chunked
    nofollow_only: float = 0.0  # share of the leaves to which all links carry rel=nofollow
    nofollow_pages: float = 0.0  # share of the leaf pages with a nofollow directive, and one link found nowhere else
    mirrored: float = 0.0  # share of the pages whose body is found under a second URL as well
    sitemaps: float = 0.0  # share of the domains that name a sitemap in robots.txt
    unlinked: float = 0.0  # share of the leaves of those domains that only the sitemap names

    slow_s: float = 0.3  # seconds before a slow answer begins
    retry_after_s: int = 1  # whole seconds; what Retry-After asks for
    crawl_delay_s: float = 0.5  # seconds; what Crawl-delay asks for

    @classmethod
    def plain(cls) -> Features:
        """Only common behaviour: HTML, robots.txt absent or with simple rules, some dead links and redirects."""
        return cls(
            answers={Kind.MISSING: 0.02, Kind.MOVED: 0.03, Kind.MOVED_AWAY: 0.01},
            robots={RobotsKind.ALLOW: 0.3, RobotsKind.FOLDER: 0.3, RobotsKind.DENY: 0.05},
        )

    @classmethod
    def mixed(cls) -> Features:
        """Every behaviour for which the outcome of a perfect crawl is well defined."""
        return cls(
            answers=_MIXED_ANSWERS,
            robots=_MIXED_ROBOTS,
            codings={coding: 0.15 for coding in Coding if coding is not Coding.IDENTITY},
            charsets={charset: 0.1 for charset in Charset if charset is not Charset.UTF8_HEADER},
            several_hosts=0.3,
            chunked=0.3,
            nofollow_only=0.03,
            nofollow_pages=0.05,
            mirrored=0.03,
            sitemaps=0.2,
            unlinked=0.05,
        )


_MIXED_ANSWERS: dict[Kind, float] = {
    Kind.MOVED: 0.03,
    Kind.MOVED_AWAY: 0.02,
    Kind.CHAIN: 0.01,
    Kind.LOOP: 0.01,
    Kind.SPIN: 0.005,
    Kind.MISSING: 0.03,
    Kind.GONE: 0.01,
    Kind.BUSY: 0.02,
    Kind.FLAKY: 0.02,
    Kind.FAILING: 0.005,
    Kind.SLOW: 0.02,
    Kind.CUT: 0.02,
    Kind.BINARY: 0.03,
}

_MIXED_ROBOTS: dict[RobotsKind, float] = {
    RobotsKind.ALLOW: 0.1,
    RobotsKind.FOLDER: 0.2,
    RobotsKind.DENY: 0.05,
    RobotsKind.DELAY: 0.05,
    RobotsKind.FORBIDDEN: 0.05,
    RobotsKind.UNREACHABLE: 0.05,
    RobotsKind.FLAKY: 0.05,
    RobotsKind.MOVED: 0.05,
    RobotsKind.FIVE_HOPS: 0.05,
    RobotsKind.SLOW: 0.05,
    RobotsKind.LARGE: 0.02,
    RobotsKind.GARBAGE: 0.05,
    RobotsKind.BOM: 0.05,
}
