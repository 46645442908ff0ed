"""The response of a URL of the synthetic web, as data. The server sends it, and the expectation follows its links."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crawler.simweb.changing import Changing
from crawler.simweb.features import Charset, Coding
from crawler.simweb.hazards import Hazard
from crawler.simweb.links import PlacedLink


class Fault(StrEnum):
    """How a response breaks on the wire."""

    CUT = "cut"
    BAD_CHUNKS = "bad_chunks"
    GARBAGE = "garbage"
    HANG_UP = "hang_up"
    SILENT = "silent"


# Faults without a response head, so that nothing can be archived.
HEADLESS = frozenset({Fault.GARBAGE, Fault.HANG_UP, Fault.SILENT})


@dataclass(frozen=True, slots=True)
class Markup:
    """The contents of an HTML page, except for its links."""

    title: str = ""
    base: str = ""  # href of <base>, empty for none
    canonical: str = ""  # URL, empty for none
    meta_robots: str = ""  # content of <meta name=robots>, empty for none
    prolog: bool = False  # begins with an XML declaration
    decoys: bool = False  # carries links that are none: comments, scripts, mailto:, images
    article: str = ""  # markup of a product or a story, after the heading
    size: int = 0  # bytes of filler
    offset: int = 0  # which filler


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An error status that the first requests for a URL get instead of its normal response.

    `succeeds_at`: number of the first request that gets the normal response, 0 if none does.
    """

    status: int
    succeeds_at: int
    retry_after_s: int = 0  # whole seconds; 0 for no header
    as_date: bool = False  # Retry-After as an HTTP-date instead of seconds (RFC 9110 section 10.2.3)

    def strikes(self, attempt: int) -> bool:
        """Whether request number `attempt`, 1 for the first, gets the error."""
        return self.succeeds_at == 0 or attempt < self.succeeds_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """The response to GET of one URL. `body` None: HTML from `markup` and `links`. `delay`: in seconds."""

    url: str
    status: int = 200
    links: tuple[PlacedLink, ...] = ()
    location: str = ""  # the Location header as written
    redirect: str = ""  # the canonical URL that it means
    markup: Markup | None = None
    body: bytes | None = None
    media: str = "text/html"
    charset: Charset = Charset.UTF8_HEADER
    coding: Coding = Coding.IDENTITY
    chunked: bool = False
    x_robots: str = ""
    nofollow: bool = False  # a directive of the page forbids to follow its links
    listed: tuple[str, ...] = ()  # URLs that a sitemap names
    changing: Changing | None = None  # an HTML page that changes
    dates: tuple[Changing, ...] = ()  # of the URLs in `listed`; the sitemap then says when they have changed
    trouble: Trouble | None = None
    delay: float = 0.0
    fault: Fault | None = None
    hazard: Hazard | None = None  # an attack; `body` is what it begins with
