"""The contents of a synthetic web: each behaviour with its share, and the presets.

Shares are fractions of the *leaves* of a domain (pages without children in its tree), of its pages, or of
the domains, as noted at each field. Every behaviour can be enabled on its own: `replace(Features.plain(),
answers={Kind.CUT: 1})`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from crawler.simweb.changing import Change, Validity
from crawler.simweb.hazards import Hazard
from crawler.simweb.robots import RobotsKind


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
    REFUSING = "refusing"  # 503 with Retry-After, always
    FLAKY = "flaky"  # 500, then the page
    FAILING = "failing"  # 500, always
    SLOW = "slow"  # the page, after `slow_s`
    CUT = "cut"  # the connection closes in the middle of the body
    BAD_CHUNKS = "bad_chunks"  # the chunked framing breaks in the middle of the body
    GARBAGE = "garbage"  # something that is not an HTTP status line
    HANG_UP = "hang_up"  # the connection closes before any answer
    SILENT = "silent"  # no answer, ever
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
    articles: bool = False  # products in /shop/ and stories in /news/ (`articles.py`)
    varied: bool = True  # hrefs in all legal spellings, <base>, decoys; else absolute ones only

    private: float = 0.05  # share of the leaves in /private/, which the folder-denying robots.txt deny
    several_hosts: float = 0.0  # share of the domains with www. and blog. beside the bare name
    chunked: float = 0.0  # share of the pages sent chunked
    nofollow_only: float = 0.0  # share of the leaves to which all links carry rel=nofollow
    nofollow_pages: float = 0.0  # share of the leaf pages with a nofollow directive, and one link found nowhere else
    mirrored: float = 0.0  # share of the pages whose body is found under a second URL as well
    sitemaps: float = 0.0  # share of the domains that name a sitemap in robots.txt
    unlinked: float = 0.0  # share of the leaves of those domains that only the sitemap names

    changes: Mapping[Change, float] = field(default_factory=dict)  # of the HTML pages; the rest never change
    change_s: tuple[float, float] = (60.0, 86_400.0)  # mean seconds between two changes, evenly by their logarithm
    validities: Mapping[Validity, float] = field(default_factory=dict)  # of the HTML pages; the rest have no validators
    dated: bool = False  # whether sitemaps say when pages have changed
    lying: float = 0.0  # share of the pages whose `lastmod` is always now

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

    @classmethod
    def hostile(cls) -> Features:
        """The kinds of answers and robots.txt of the `mixed` preset, three more that are malformed, and one domain for each
        kind of attack."""
        return cls(
            answers=_MIXED_ANSWERS | {Kind.BAD_CHUNKS: 0.01, Kind.GARBAGE: 0.01, Kind.HANG_UP: 0.01},
            robots=_MIXED_ROBOTS,
            hazards=tuple(Hazard),
        )

    @classmethod
    def named(cls, name: str) -> Features:
        """The preset called `name`. Raises ValueError if there is none."""
        presets = {"plain": cls.plain, "mixed": cls.mixed, "hostile": cls.hostile}
        if name not in presets:
            raise ValueError(f"features must be one of {', '.join(presets)}, not {name!r}")
        return presets[name]()


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
