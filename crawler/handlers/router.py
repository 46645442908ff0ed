"""Says which function of users is called when: for which pages, for requests, responses and items, at the start and end."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.inspect import DataclassType, DictType, StructType, TypedDictType, type_info

from crawler.arguments import check, checked
from crawler.errors import UserError, closest
from crawler.handlers.parsed_page import Handle, ParsedPage
from crawler.handlers.requests import Files
from crawler.handlers.values import SharedValues, check_loop, running_loop
from crawler.hooks import ROUTERS, OutgoingRequest, imported
from crawler.page import DEAD_REASONS, Exchange, Outcome, Page
from frontier.entries import tag_of
from frontier.errors import BadInput
from frontier.urls import UrlPattern

Handler = Callable[[ParsedPage, Handle], Awaitable[None] | None]
"""Handles a page. An async function runs in the event loop, a plain one in a thread."""

Hook = Callable[[Any], Awaitable[None] | None]
"""Runs when a replica starts or ends, with its `Context`."""

RequestFunction = Callable[[OutgoingRequest, "Context"], Awaitable[None] | None]
"""Changes a request before it is sent."""

ResponseFunction = Callable[[OutgoingRequest, Exchange | None, "Context"], Awaitable[None] | None]
"""Sees the response to a request, None if it failed."""

Changed = dict[str, Any] | list[dict[str, Any]] | None

ItemFunction = Callable[[str, dict[str, Any], "Context"], Awaitable[Changed] | Changed]
"""Changes an item of a data set."""

H = TypeVar("H", bound=Handler)
Q = TypeVar("Q", bound=RequestFunction)
R = TypeVar("R", bound=ResponseFunction)
C = TypeVar("C", bound=ItemFunction)
K = TypeVar("K", bound=Hook)


class Route(NamedTuple):
    """A function and which pages it handles."""

    pattern: UrlPattern
    content_type: str
    label: str
    statuses: Collection[int]
    failure: int | str | None  # a status, a reason, or "" for all failures; None: pages with one of `statuses`
    function: Handler

    def __str__(self) -> str:
        label = f"label {self.label!r}" if self.label else ""
        kind = "" if self.failure is None else f"failures {self.failure}".strip()
        if self.statuses is not OK:
            kind = f"status {', '.join(map(str, self.statuses)) if len(self.statuses) < 5 else self.statuses}"
        conditions = [repr(self.pattern.pattern) if self.pattern.pattern else "", self.content_type, label, kind]
        return f"{name_of(self.function)} ({', '.join(filter(None, conditions)) or 'all pages'})"

    def is_for(self, page: Page) -> bool:
        """Whether `page` meets its conditions."""
        status = page.exchange.status if page.exchange is not None else 0
        is_done = page.outcome is Outcome.DONE
        if self.failure is None:
            is_kind = status in self.statuses and (is_done or page.reason == f"http_{status}")
        else:
            has_failed = page.outcome is Outcome.DEAD or (is_done and status >= 400)
            is_kind = has_failed and self.failure in ("", status, page.reason)
        has_label = not self.label or self.label == page.label
        return (
            is_kind
            and has_label
            and page.has_type(self.content_type)
            and self.pattern.is_in(page.url.partition("#")[0])
        )


class Router:
    """The handlers of a crawl. The first one whose conditions a page meets handles it. `settings`: a dataclass or
    msgspec.Struct that the table `[app]` of the settings has to fit; None: any dict.

    A handler is called with a `ParsedPage` and a `Handle`. Other functions are called with a `Context`. All may be
    async, and return nothing."""

    @checked
    def __init__(self, settings: type | None = None) -> None:
        if settings is not None and not isinstance(type_info(settings), _SCHEMAS):
            raise UserError(f"settings has to be a dataclass or a msgspec.Struct, not {settings.__name__}")
        self.settings = settings
        self.start_hooks: list[Hook] = []
        self.end_hooks: list[Hook] = []
        self.request_functions: list[RequestFunction] = []
        self.response_functions: list[ResponseFunction] = []
        self.item_functions: list[ItemFunction] = []
        self._routes: list[Route] = []

    def __repr__(self) -> str:
        return f"<Router {', '.join(name_of(route.function) for route in self._routes)}>"

    def handler(
        self, pattern: str = "", *, content_type: str = "", label: str = "", status: int | Iterable[int] | None = None
    ) -> Callable[[H], H]:
        """A decorator for the function that handles pages whose URL matches the regular expression `pattern` anywhere.
        `content_type`: only pages of this media type, such as `text/html`, or of a type such as `image/*`. `label`:
        only pages that were enqueued with this label. `status`: only pages with this status or one of these, such as
        `range(400, 500)`, and those that are dead because of it; without it, pages with a 2xx status. Raises UserError for
        what cannot be used."""
        if not isinstance(content_type, str) or (content_type and not _MEDIA_TYPE.fullmatch(content_type)):
            raise UserError(f"@router.handler(content_type={content_type!r}): write it as text/html or text/*")
        return self._register("handler", pattern, content_type.lower(), label, _statuses(status), None)

    def on_failure(self, pattern: str = "", *, kind: int | str = "", label: str = "") -> Callable[[H], H]:
        """A decorator for the function that handles URLs that end without a page: as dead, after their last try, or with a
        status from 400 on, also because the page's own handler failed. `kind`: only those with this status, or with this
        reason of the output, such as "timeout". `pattern` and `label`: as in `handler`. Without a response, the page has
        no status and no body. Raises UserError for what cannot be used."""
        if isinstance(kind, str):
            check_reason(f"@router.on_failure(kind={kind!r})", kind, DEAD_REASONS)
        elif not isinstance(kind, int) or not 400 <= kind <= 999:
            raise UserError(f"@router.on_failure(kind={kind!r}): a page has failed with a status from 400 to 999")
        return self._register("on_failure", pattern, "", label, OK, kind)

    def _register(
        self,
        name: str,
        pattern: str,
        content_type: str,
        label: str,
        statuses: Collection[int],
        failure: int | str | None,
    ) -> Callable[[H], H]:
        if callable(pattern):
            raise UserError(f"write @router.{name}() with parentheses above {name_of(pattern)}")
        check("pattern", pattern, str)
        check("label", label, str)
        try:
            found = UrlPattern(pattern)
            tag_of(label, None)
        except (BadInput, ValueError) as error:
            raise UserError(f"@router.{name}: {error}") from error

        def register(function: H) -> H:
            _check(function, "the page", "the crawl", instead="put items into a data set with crawl.push(NAME, ITEM)")
            self._routes.append(Route(found, content_type, label, statuses, failure, function))
            return function

        return register

    def on_start(self, function: K) -> K:
        """A decorator for a function that runs once in each replica, before its first page. If it raises, the replica
        does not start. What handlers need, such as a pool of connections, goes into `crawl.state`."""
        _check(function, "the crawl")
        self.start_hooks.append(function)
        return function

    def on_end(self, function: K) -> K:
        """A decorator for a function that runs once in each replica, after its last page, unless the process is
        killed."""
        _check(function, "the crawl")
        self.end_hooks.append(function)
        return function

    def before_request(self, function: Q) -> Q:
        """A decorator for a function that gets each `OutgoingRequest`, also those for robots.txt and those of handlers, and
        the `Context`. It may change header fields, cookies and proxy. If it raises `Drop`, the URL is denied with the
        reason `dropped`; with `Retry`, the domain waits for at least `after` seconds, and no try is lost."""
        _check(function, "the request", "the crawl")
        self.request_functions.append(function)
        return function

    def after_response(self, function: R) -> R:
        """A decorator for a function that gets each request, its `Exchange`, None if it failed (`request.failure`), and the
        `Context`. If it raises `Retry`, the URL is fetched again, up to `politeness.tries` times; with `Drop`, it is denied
        with the reason `response_dropped`."""
        _check(function, "the request", "the exchange", "the crawl")
        self.response_functions.append(function)
        return function

    def on_item(self, function: C) -> C:
        """A decorator for a function that gets the name of the data set of each item, the item as a dict, and the
        `Context`, also of items of `[[extract]]`. It may change the dict, return another one or a list of items in its
        place, or raise `Drop`."""
        _check(function, "the name", "the item", "the crawl")
        self.item_functions.append(function)
        return function

    @property
    def conditions(self) -> list[str]:
        """The name of each handler, and which pages it handles."""
        return list(map(str, self._routes))

    @property
    def labels(self) -> set[str]:
        """The labels for which there is a handler."""
        return {route.label for route in self._routes}

    def route_of(self, page: Page) -> Route | None:
        """Return the function that handles `page` with its conditions, None if there is none."""
        return next((route for route in self._routes if route.is_for(page)), None)


OK = range(200, 300)
"""The statuses of pages that handlers get unless they name others."""

_SCHEMAS = (DataclassType, StructType, TypedDictType, DictType)
_MEDIA_TYPE = re.compile(r"[^/;*\s]+/(\*|[^/;*\s]+)")
_FAILED_STATUS = re.compile(r"http_[4-9]\d\d")


def _statuses(wanted: int | Iterable[int] | None) -> Collection[int]:
    if wanted is None:
        return OK
    found = wanted if isinstance(wanted, range) else tuple(wanted) if isinstance(wanted, Iterable) else (wanted,)
    if not found or not all(isinstance(status, int) and 200 <= status <= 999 for status in found):
        raise UserError(
            f"@router.handler(status={wanted!r}): write a status from 200 to 999, a range or a list of them"
        )
    return found


def check_reason(written: str, reason: str, known: Collection[str]) -> None:
    """Raise UserError unless `reason`, of a failure or empty, is one of `known` or has a status. `written`: what has it."""
    of_try = reason.removeprefix("given_up_")
    if reason and of_try not in known and not _FAILED_STATUS.fullmatch(of_try):
        meant = "".join(f"; did you mean {near!r}?" for near in closest(reason, known))
        raise UserError(
            f"{written}: no page fails like this{meant}; the reasons are http_STATUS, {', '.join(sorted(known))}, and "
            "given_up_ with one of these"
        )


def _check(function: Callable[..., Any], *arguments: str, instead: str = "it would not run") -> None:
    """Raises UserError if `function` cannot be called with `arguments`. `instead`: what to do if it yields."""
    if not callable(function):
        raise UserError(f"{function!r} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise UserError(f"{name_of(function)} yields: {instead}")
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        number = ("one argument", "two arguments", "three arguments")[len(arguments) - 1]
        named = " and ".join(filter(None, (", ".join(arguments[:-1]), arguments[-1])))
        raise UserError(f"{name_of(function)} must take {number}: {named}") from None
    except ValueError:
        pass  # a builtin does not tell


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of `function` for logs."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def load_router(name: str) -> Router:
    """Return the router at the import path `name` ("module:router"), or of the entry point `name`. Raises UserError
    if there is none."""
    found = imported(name, ROUTERS)
    if not isinstance(found, Router):
        raise UserError(f"{name!r} is not a crawler.Router")
    return found


class Context:
    """What all functions of a router share in one replica. `settings`: the table `[app]`, as the router's schema or as
    a dict; `state`: a dict for whatever they keep, such as a pool of connections; `crawl`,
    `replica`: their names. `files`: where files are downloaded to."""

    def __init__(self, settings: Any = None, crawl: str = "", replica: str = "", files: Path | None = None) -> None:
        self.settings: Any = {} if settings is None else settings
        self.state: dict[str, Any] = {}
        self._store = SharedValues()
        self._loop = running_loop()
        self.crawl = crawl
        self.replica = replica
        self.files = Files(files)

    def __repr__(self) -> str:
        return f"<Context {self.crawl} {self.replica}>"

    @property
    def store(self) -> SharedValues:
        """Values that all replicas share. Raises RuntimeError in a thread, and in another event loop."""
        check_loop(self._loop)
        return self._store

    @store.setter
    def store(self, values: SharedValues) -> None:
        self._store = values


def app_settings(router: Router, values: dict[str, Any]) -> Any:
    """Return the settings in `values` as the schema of `router`. Raises UserError if they do not fit."""
    if router.settings is None:
        return values
    try:
        return msgspec.convert(values, router.settings)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at `$")
        raise UserError(f"[app]{place.rstrip('`')}: {problem}") from error
