"""What goes in and out of a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec

from crawler.errors import CrawlerError
from crawler.page import Exchange

GRACE_S = 5.0
"""How long a page may take, after its time, to give its DOM before its browser is killed."""

RenderOutcome = Literal["done", "time", "crashed", "memory", "hung", "gone"]
"""`time`: its DOM was taken when its time was over, or after an endless script was stopped; `crashed`: its process ended;
`memory`: its browser was killed because it needed too much; `hung`: or because it did not answer; `gone`: or ended."""

LOADABLE: Mapping[str, str] = {
    "script": "script",
    "stylesheet": "style",
    "xhr": "data",
    "fetch": "data",
    "document": "frame",
    "image": "image",
    "font": "font",
}
"""Which of the words in `render.load` a type of request belongs to (Network.ResourceType of the DevTools protocol). The
others are never answered: media, streams, beacons, reports, manifests, icons."""


class BrowserFailed(CrawlerError):
    """Raised when no browser can be started, or none is tried because several have failed."""


class Refused(CrawlerError):
    """Raised by an `Answer` that refuses a request. `reason`: one word."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class PageRequest(msgspec.Struct, frozen=True):
    """A request that a page makes. `type`: as in `LOADABLE`; `headers`: those that say something about the request
    rather than about the browser, with its own cookies."""

    url: str
    type: str
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


Answer = Callable[[PageRequest], Awaitable[Exchange]]
"""Answers the request of a page. Raises `Refused` or `FetchFailed`."""


class Resource(msgspec.Struct, frozen=True, gc=False):
    """An answered request of a page. `type`: see `LOADABLE`."""

    type: str
    exchange: Exchange


class RenderLimits(msgspec.Struct, frozen=True):
    """What pages may do. `time_s`: for all of a page; `settle_s`: the time without a request after which a loaded page
    counts as complete, and `settle_cap_s` how long this is waited for. `grow`: the pixels to which the window may grow, so
    that lists load what they show on scrolling; 0 for none. `load`: which requests are answered; `posts`: the URLs to
    which they may post. `memory`: bytes of data of each process. `pages`: after so many, a browser is replaced."""

    time_s: float = 20.0
    settle_s: float = 0.5
    settle_cap_s: float = 8.0
    grow: int = 20_000
    load: frozenset[str] = frozenset({"script", "style", "data", "frame"})
    posts: tuple[str, ...] = ()
    requests: int = 150
    bytes: int = 20 << 20
    memory: int = 1 << 30
    pages: int = 200


class Rendered(msgspec.Struct, frozen=True):
    """What became of a page. `html`: its DOM in UTF-8, empty if it gave none; `url`: where its scripts have brought it,
    without a request. `links`: URLs that its scripts led to by history, navigation, windows and downloads. `resources`:
    the answers to its requests. `refused`: how many of its requests were not answered, by reason. `screenshot`: a PNG, if
    it was wanted."""

    outcome: RenderOutcome
    elapsed: float
    html: bytes = b""
    url: str = ""
    links: tuple[str, ...] = ()
    resources: tuple[Resource, ...] = ()
    refused: Mapping[str, int] = {}
    screenshot: bytes = b""
