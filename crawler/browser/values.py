"""What goes in and out of a browser."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from crawler.hooks import ExtraRequest
from crawler.page import Exchange

GRACE_S = 5.0
"""How long a page may take, after its time, to give its DOM before its browser is killed."""

LOADABLE: Mapping[str, str] = {
    "script": "script",
    "stylesheet": "style",
    "xhr": "data",
    "frame": "frame",
    "image": "image",
    "font": "font",
}
"""Which of the words in `render.load` a type of request belongs to: Network.ResourceType of the DevTools protocol, but
`frame` for the document of one, because a record with the type `document` is that of a page, and `xhr` for all data, as
the requests of handlers have the type `fetch`. The others are never
answered: media, streams, beacons, reports, manifests, icons."""


Answer = Callable[[ExtraRequest], Awaitable[Exchange]]
"""Answers a request of a page, whose `kind` is as in `LOADABLE`. Raises Refused and FetchFailed."""


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
