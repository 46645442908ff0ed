"""The response of a URL of the synthetic web, as data: its links in many spellings, its articles, and its faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from tests.simweb.features import Charset, Coding, Hazard, draw


class PlacedLink(NamedTuple):
    """A link on a page: the canonical URL that it means, and the text of its href."""

    url: str
    href: str
    nofollow: bool = False


@dataclass(frozen=True, slots=True)
class Base:
    """What relative hrefs are resolved against: a host, and a folder with both its slashes."""

    host: str
    folder: str

    @classmethod
    def of(cls, host: str, target: str) -> Base:
        """The base of a page at `target` (path and query) without <base>."""
        path = target.partition("?")[0]
        return cls(host, path[: path.rindex("/") + 1])


def absolute(host: str, target: str) -> str:
    """The canonical URL."""
    return f"http://{host}{target}"


def spell(host: str, target: str, base: Base, choice: int) -> str:
    """A spelling of the URL, selected by `choice` (0 or more). Relative spellings are used only where possible."""
    spellings = _NEAR if host == base.host else _FAR
    return spellings[choice % len(spellings)](host, target, base)


def spell_fixed(host: str, target: str, base: Base, choice: int) -> str:
    """A plain spelling that means the same URL from any page of the host."""
    return target if host == base.host and choice % 2 else absolute(host, target)


def spell_location(host: str, target: str, base: Base, choice: int) -> str:
    """A spelling for a Location header: a URI reference (RFC 9110 section 10.2.2), ASCII without blanks."""
    if host == base.host and choice % 3 == 0:
        return _relative(host, target, base)
    return spell_fixed(host, target, base, choice)


def split(url: str) -> tuple[str, str]:
    """Host and target of a canonical URL."""
    host, slash, rest = url.removeprefix("http://").partition("/")
    return host, slash + rest


def _relative(host: str, target: str, base: Base) -> str:
    if target.startswith(base.folder) and len(target) > len(base.folder):
        return target[len(base.folder) :]
    return "../" * (base.folder.count("/") - 1) + target[1:] or "./"


_Spelling = Callable[[str, str, Base], str]

_FAR: tuple[_Spelling, ...] = (
    lambda host, target, _: absolute(host, target),
    lambda host, target, _: f"HTTP://{host.upper()}{target}",
    lambda host, target, _: f"http://{host}:80{target}",
    lambda host, target, _: f"http://{host}{target}#part-2",
    lambda host, target, _: f"//{host}{target}",
    lambda host, target, _: f" \n http://{host}{target} ",
    lambda host, target, _: f"http://{host}{target}{'&' if '?' in target else '?'}utm_source=simweb",
)

_NEAR: tuple[_Spelling, ...] = (
    _relative,
    lambda host, target, _: target,
    _relative,
    lambda host, target, _: f"{target}#top",
    lambda host, target, _: f"/./up/..{target}",
    lambda host, target, _: target.replace("%C3%A9", "é"),
    lambda host, target, _: target.replace("~", "%7e"),
    *_FAR,
)

_WORDS = ("amber", "brass", "cedar", "delta", "ember", "flint", "grove", "haven")


class Product(NamedTuple):
    """`price`: with two decimals."""

    name: str
    price: float

    @property
    def html(self) -> str:
        """The product as it is in its page."""
        return f'<div class="product"><h2>{self.name}</h2> <span class="price">{self.price:.2f} EUR</span></div>\n'


class Story(NamedTuple):
    """`published`: an ISO date."""

    headline: str
    published: str

    @property
    def html(self) -> str:
        """The story as it is in its page."""
        lead = f"<p>The news of {self.headline} reached us in the morning, and has been confirmed since.</p>"
        return (
            f'<div class="story"><h2>{self.headline}</h2> <time datetime="{self.published}">then</time>{lead}</div>\n'
        )


def article(seed: int, url: str) -> Product | Story | None:
    """The article of the page at the canonical `url`, None if it has none."""
    bits = draw(seed, "article", url)
    words = " ".join(_WORDS[bits >> shift & 7] for shift in (0, 3, 6))
    match split(url)[1].split("/")[1]:
        case "shop":
            return Product(f"{words} {bits % 10_000}", (bits >> 9) % 100_000 / 100)
        case "news":
            return Story(f"{words} {bits % 10_000}", f"2024-{(bits >> 9) % 12 + 1:02}-{(bits >> 13) % 28 + 1:02}")
    return None


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
    trouble: Trouble | None = None
    delay: float = 0.0
    is_cut: bool = False  # the connection closes in the middle of the body
    hazard: Hazard | None = None  # an attack; `body` is what it begins with
