"""User code in a crawl: page hooks, handlers and additional sinks. `docs/how-to/extend.md` explains how to write them.

A page hook is called for each page before the page is written and settled, in the archive's thread: usually once, and
again if the disk was full or after a crash. It returns None, a dict of fields for the page's row (`extra`), or False to
store the row without the body. If it raises, only its fields are missing. If a sink raises, see `crawler.sinks.sink`.
What handlers (`crawler.handlers`) ask for is a `Handled`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from crawler.errors import FailureKind, FetchFailed, UserError
from crawler.events import HookFailed
from crawler.http_head import is_of_the_client
from crawler.page import FETCHED, Exchange, Extra, Item, Page, RejectedItem
from crawler.request import check_field, fields_by_name, with_cookies
from frontier.entries import label_of, payload_of
from frontier.urls import UrlPattern

PAGE_HOOKS, SINKS, ROUTERS = "peercrawl.page_hooks", "peercrawl.sinks", "peercrawl.routers"

PageHook = Callable[[Page], "dict[str, Any] | bool | None"]


class HookResult(msgspec.Struct, frozen=True):
    """The combined result of all hooks for a page. `extra`: their fields as JSON, or None."""

    keeps_body: bool = True
    extra: msgspec.Raw | None = None


KEEP = HookResult()


class PageHooks:
    """Calls the hooks, given as (name, function), in the thread of the caller."""

    def __init__(self, hooks: Iterable[tuple[str, PageHook]] = ()) -> None:
        self._hooks = tuple(hooks)
        self._failures: list[HookFailed] = []

    @classmethod
    def named(cls, names: Iterable[str]) -> PageHooks:
        """Load the hooks with these names. Raises UserError if a name cannot be resolved to a function."""
        return cls((name, load(name, PAGE_HOOKS)) for name in names)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def ask(self, page: Page) -> HookResult:
        """Return the combined result of the hooks for `page`. If two hooks set the same field, the later one wins.
        Exceptions of hooks are recorded, not raised."""
        if not self._hooks:
            return KEEP
        extra: dict[str, Any] = {}
        keeps = True
        for name, hook in self._hooks:
            try:
                returned = hook(page)
                if isinstance(returned, dict):
                    msgspec.json.encode(returned)
                    extra |= returned
                elif returned is False:
                    keeps = False
                elif returned is not None and returned is not True:
                    raise TypeError(f"returned {type(returned).__name__}, not a dict, False or None")
            except Exception as error:  # a user's function may raise anything
                self._failures.append(HookFailed(name, page.url, f"{type(error).__name__}: {error}"))
        return HookResult(keeps, msgspec.Raw(msgspec.json.encode(extra)) if extra else None)

    def take_failures(self) -> list[HookFailed]:
        """Return the failures since the last call."""
        failures, self._failures = self._failures, []
        return failures


class Wanted(msgspec.Struct, frozen=True):
    """A link that a handler wants followed. `priority`: None for that of other links; `tag`: label and payload of the URL
    (`frontier.entries.tag_of`); `key`: what tells its request from others to the same URL."""

    url: str
    priority: float | None = None
    tag: str = ""
    key: str = ""


class Handled(msgspec.Struct, frozen=True):
    """What a `handler` asks for: items, links to follow, joined to `base` if it is set, and the patterns of links not to
    follow. Or how it failed: one word (`reason`, empty if it did not fail) and the `error`. `retry_after_s`: after how many
    seconds at least the page is to be fetched again; None: it did not ask for that. `stop`: why the crawl is to end, or
    None. `is_of_failure`: the handler is one for failures. `rejected`: items that were dropped. `may_pass`: it may have
    failed because a request of its own did, for a reason that may pass."""

    items: tuple[Item, ...] = ()
    added: tuple[Wanted, ...] = ()
    dropped: tuple[UrlPattern, ...] = ()
    base: str = ""
    handler: str = ""
    reason: str = ""
    error: str = ""
    retry_after_s: float | None = None
    stop: str | None = None
    is_of_failure: bool = False
    rejected: tuple[RejectedItem, ...] = ()
    may_pass: bool = False


NOTHING = Handled()


class HttpRequest(msgspec.Struct, frozen=True):
    """A request to make. `fields`: header fields, which replace the usual ones; `kind`: see `OutgoingRequest`;
    `is_private`: keep `body` out of the records; `tag`: of the URL (`frontier.entries.tag_of`)."""

    url: str
    method: str = "GET"
    fields: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    kind: str = FETCHED
    is_private: bool = False
    tag: str = ""


class Visit(Protocol):
    """The visit to a page that is handled. `extras`: what was fetched besides."""

    extras: list[Extra]

    async def send(self, request: HttpRequest) -> Exchange:
        """Make `request` when it is its turn. Any status is a response, and a redirect is not followed. Raises Refused and
        FetchFailed."""

    def ends_in(self, seconds: float) -> None:
        """Note that the time of the handler is over in so many seconds."""


class OutgoingRequest:
    """A request that is about to be sent. `url`, `method`, `kind`: what is requested; `kind` is "page", "requisite"
    for what pages embed, "robots" for the files that say what may be fetched, "fetch" for what a handler asks for, or for a
    page in a browser what it loads: "script", "stylesheet", "xhr", "frame", "image" or "font".
    Functions may change `headers`, which replace the usual ones, `cookies`, which are sent with others, and `proxy`, the
    URL of one; empty: as the settings say. `state`: what they want to find again when there is a response. `failure`: why
    there is none then, such as "timeout"."""

    def __init__(
        self, url: str, method: str = "GET", fields: Sequence[tuple[str, str]] = (), kind: str = "page", tag: str = ""
    ) -> None:
        self._url = url
        self._method = method
        self._kind = kind
        self.headers = dict(fields)
        self._given = frozenset(fields)
        self.cookies: dict[str, str] = {}
        self.proxy = ""
        self.state: dict[str, Any] = {}
        self.failure = ""
        self._tag = tag

    def __repr__(self) -> str:
        return f"<OutgoingRequest {self.method} {self.url}>"  # headers and the proxy may have secrets

    @property
    def url(self) -> str:
        """What is requested. The turn at its domain is for this URL, so no function may change it."""
        return self._url

    @property
    def method(self) -> str:
        """The method, such as GET."""
        return self._method

    @property
    def kind(self) -> str:
        """The kind, such as "page"."""
        return self._kind

    @property
    def label(self) -> str:
        """The label with which the page was enqueued, or empty."""
        return label_of(self._tag)

    @property
    def payload(self) -> dict[str, Any]:
        """The payload with which the page was enqueued, or empty."""
        return payload_of(self._tag)

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The header fields with the cookies. Raises ValueError and TypeError for one that cannot be sent or changed."""
        fields = fields_by_name(self.headers)
        for name, field in fields.items():
            if field in self._given:
                continue
            check_field(*field)
            if is_of_the_client(name) or name == "user-agent":
                raise ValueError(f"the header field {name} cannot be changed")
        if self.cookies:
            fields["cookie"] = with_cookies(fields.pop("cookie", None), self.cookies)
        return tuple(fields.values())


class Intervened(FetchFailed):
    """Raised if a function of the router has kept a request from being sent, or does not accept its response. `after_s`:
    how long to wait at least before the next attempt; `exchange`: the response; `function`: the name of the function."""

    def __init__(self, kind: FailureKind, detail: str, after_s: float = 0.0, function: str = "") -> None:
        super().__init__(kind, detail)
        self.after_s = after_s
        self.function = function
        self.exchange: Exchange | None = None


class RequestFunctions(Protocol):
    """Functions of users that see each request and its response."""

    async def before(self, request: OutgoingRequest) -> None:
        """Have `request` changed. Raises Intervened if it is not to be sent now."""

    async def after(self, request: OutgoingRequest, exchange: Exchange | None) -> None:
        """Show `exchange`, the response to `request`; None if it failed. Raises Intervened if the response does not
        count."""


class PageHandlers(Protocol):
    """Handles pages that were fetched, before they are written and settled."""

    def wants(self, page: Page) -> bool:
        """Return whether `page` has a handler."""

    async def handle(self, page: Page, visit: Visit | None = None) -> Handled:
        """Return what the handler of `page` asks for. It may make requests during `visit`. Raises nothing that the handler
        raises."""

    @property
    def changes_items(self) -> bool:
        """Whether there are functions for items."""

    async def changed(self, items: Sequence[Item]) -> Handled:
        """Return what becomes of `items`, or how a function for items failed."""


def load(name: str, group: str) -> Callable[..., Any]:
    """Return the function at the import path `name` ("module:function"), or of the entry point `name` in `group`.

    Raises UserError if it cannot be imported or is not callable.
    """
    found = imported(name, group)
    if not callable(found):
        raise UserError(f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]


def imported(name: str, group: str) -> Any:
    """Return what is at the import path `name` ("module:name"), or what the entry point `name` in `group` stands for.
    Raises UserError if it cannot be imported."""
    try:
        if ":" in name:
            if (here := str(Path.cwd())) not in sys.path:
                sys.path.append(here)  # so that modules in the working directory are found
            module, _, attribute = name.partition(":")
            return getattr(importlib.import_module(module), attribute)
        from importlib.metadata import entry_points  # noqa: PLC0415 - takes 5 ms, and few crawls name an entry point

        (point,) = entry_points(group=group, name=name)
        return point.load()
    except ValueError as error:
        raise UserError(f"{name!r}: no installed package offers it in {group}; or write package.module:name") from error
    except (ImportError, AttributeError) as error:
        raise UserError(f"{name!r} cannot be imported: {error}") from error
