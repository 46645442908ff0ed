"""What goes in and out of a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from crawler.hooks import HttpRequest
from crawler.page import Exchange

GRACE_S = 5.0
"""How long a page may take, after its time, to give its DOM before its browser is killed."""

Answer = Callable[[HttpRequest], Awaitable[Exchange]]
"""Answers a request of a page, whose `kind` is one of `RenderLimits.load`. Raises Refused and FetchFailed."""


class RenderLimits(msgspec.Struct, frozen=True):
    """What pages may do. `time_s`: for all of a page; `settle_s`: the time without a request after which a loaded page
    counts as complete, and `settle_cap_s` how long this is waited for. `grow`: the pixels to which the window may grow, so
    that lists load what they show on scrolling; 0 for none. `load`: the types of requests that are answered
    (`crawler.browser.page.type_of`); `posts`: the URLs to which they may post. `memory`: bytes of data of each process.
    `pages`: after so many, a browser is replaced."""

    time_s: float = 20.0
    settle_s: float = 0.5
    settle_cap_s: float = 8.0
    grow: int = 20_000
    load: frozenset[str] = frozenset({"script", "stylesheet", "xhr", "frame"})
    posts: tuple[str, ...] = ()
    requests: int = 150
    bytes: int = 20 << 20
    memory: int = 1 << 30
    pages: int = 200
