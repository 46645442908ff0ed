"""A polite web crawler: it starts from seed URLs, runs in any number of replicas, and writes pages to files.

This package is also the public API. Programs, handlers, page hooks and sinks import what they need from here and from
nowhere else (`docs/reference/api.md`): these names stay when modules move. They are loaded on first use, so that a command
which needs none of them starts without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crawler.app.program import Crawl, Stats
    from crawler.errors import FetchFailed, Refused, SinkFull, UserError
    from crawler.handlers.parsed_page import Download, Drop, Handle, ParsedPage, Retry
    from crawler.handlers.router import Context, Router
    from crawler.handlers.values import SharedValues
    from crawler.hooks import OutgoingRequest, PageHook
    from crawler.page import Cut, Exchange, Item, Link, LinkKind, Outcome, Page, Phases
    from crawler.parse.forms import Form
    from crawler.parse.text import decoded
    from crawler.parse.values import number
    from crawler.request import Request
    from crawler.sinks.sink import Sink, SinkContext

__version__ = "0.1.0"
"""The build reads the version from here. Reading it from the package metadata instead would cost each command 40 ms."""

_MODULES = {
    "crawler.app.program": ("Crawl", "Stats"),
    "crawler.errors": ("FetchFailed", "Refused", "SinkFull", "UserError"),
    "crawler.handlers.parsed_page": ("Download", "Drop", "Handle", "ParsedPage", "Retry"),
    "crawler.handlers.router": ("Context", "Router"),
    "crawler.handlers.values": ("SharedValues",),
    "crawler.hooks": ("OutgoingRequest", "PageHook"),
    "crawler.page": ("Cut", "Exchange", "Item", "Link", "LinkKind", "Outcome", "Page", "Phases"),
    "crawler.parse.forms": ("Form",),
    "crawler.parse.text": ("decoded",),
    "crawler.parse.values": ("number",),
    "crawler.request": ("Request",),
    "crawler.sinks.sink": ("Sink", "SinkContext"),
}

__all__ = [
    "Context",
    "Crawl",
    "Cut",
    "Download",
    "Drop",
    "Exchange",
    "FetchFailed",
    "Form",
    "Handle",
    "Item",
    "Link",
    "LinkKind",
    "Outcome",
    "OutgoingRequest",
    "Page",
    "PageHook",
    "ParsedPage",
    "Phases",
    "Refused",
    "Request",
    "Retry",
    "Router",
    "SharedValues",
    "Sink",
    "SinkContext",
    "SinkFull",
    "Stats",
    "UserError",
    "decoded",
    "number",
]


def __getattr__(name: str) -> object:
    """Load a name of the public API (PEP 562)."""
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
