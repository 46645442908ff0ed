"""Tests of handlers without a server: `page` makes a page from a body, or loads one that was saved, and `run_handler` has
the router handle it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from crawler.arguments import JsonDict, checked
from crawler.errors import REFUSALS, FailureKind, FetchFailed, Refused, UserError
from crawler.handlers.parsed_page import ParsedPage
from crawler.handlers.recorded import extra_folders, load
from crawler.handlers.requests import FILES, KnownAnswers
from crawler.handlers.router import Context, Router, app_settings, check_reason
from crawler.handlers.runner import HandlerRunner
from crawler.handlers.values import SharedValues
from crawler.hooks import Handled
from crawler.page import DEAD_REASONS, Exchange, Extra, Link, LinkKind, Outcome, Page
from crawler.parse.document import Document, ParseLimits, noted_fields, read, robots_tags
from crawler.parse.html import ExtractPolicy
from crawler.settings.tables import HandlersTable
from frontier.entries import label_of, payload_of, request_of, tag_of
from frontier.errors import BadUrl
from frontier.urls import canonicalize, with_key

_LIMITS = ParseLimits(ExtractPolicy(), 64 << 20)


class Result(msgspec.Struct, frozen=True):
    """What a handler asked for. `handler`: its name, empty if no handler is for the page; `items`: by data set; `links`:
    the URLs that it wants followed, each with the key of its request if there is one; `labels`: the label and payload of
    those that have one; `sent`: the method and body of those that are no plain GET; `error`: with what it failed, empty
    if it did not; `retry_after`: after how many seconds it wants the page to be fetched again, because of `error`; None
    if it does not; `stop`: why it wants the crawl to end, None if it does not."""

    handler: str
    items: dict[str, list[dict[str, Any]]]
    links: list[str]
    labels: dict[str, tuple[str, dict[str, Any]]]
    error: str
    stop: str | None
    retry_after: float | None = None
    sent: dict[str, tuple[str, bytes]] = {}


@checked
def page(
    url: str | Path,
    body: str | bytes = b"",
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    label: str = "",
    payload: JsonDict | None = None,
    reason: str = "",
) -> ParsedPage:
    """Return the page at `url` with this body, as a handler gets it. `headers`: of the response; the type is HTML in
    UTF-8 unless they name another one. `label` and `payload`: with which it was enqueued. `reason`: why it is dead
    without a response, such as "timeout"; as one of `answers`, also why a request is refused, such as "robots". Or return
    the page that `crawler try --record` has saved in the folder `url`, a `Path`. Raises UserError for a URL that cannot be
    crawled, for a status that no page has, and for a folder without a page."""
    failed, extras = Outcome.DEAD, tuple[Extra, ...]()
    if isinstance(url, Path):
        saved, body = load(url)
        loaded = ((page(below).exchange, load(below)[0].kind) for below in extra_folders(url))
        extras = tuple(Extra(exchange, kind) for exchange, kind in loaded if exchange is not None)
        url, status, headers = saved.url, saved.status, saved.headers
        failed = Outcome.DENIED if saved.is_denied else Outcome.DEAD
        label, payload, reason = label or saved.label, payload or saved.payload or None, saved.reason
    else:
        check_reason(f"{reason=}", reason, DEAD_REASONS | REFUSALS | set(FailureKind))
        if reason and (status != 200 or "http_" in reason):
            raise UserError("give the status of a response, such as 404, or the reason why there is none")
    if not (reason or 200 <= status <= 999):
        raise UserError(f"status={status}: write one from 200 to 999")
    try:
        target = canonicalize(url)
    except BadUrl as error:
        raise UserError(f"{url!r} cannot be crawled: {error}") from error
    made = Page(
        url=target.href,
        domain=target.domain,
        depth=0,
        outcome=failed if reason else Outcome.DONE,
        reason=reason or ("ok" if 200 <= status < 300 else f"http_{status}"),
        settled_at=0.0,
        tag=tag_of(label, payload),
        extras=extras,
    )
    if reason:
        return ParsedPage.of(made)
    fields = {
        name.lower(): value for name, value in {"Content-Type": "text/html; charset=utf-8", **(headers or {})}.items()
    }
    raw = tuple((name.encode(), value.encode()) for name, value in fields.items())
    head = b"".join(b"%b: %b\r\n" % field for field in raw)
    exchange = Exchange(
        url=target.href,
        status=status,
        reason="",
        headers=raw,
        request_head=b"",
        response_head=b"HTTP/1.1 %d \r\n" % status + head + b"\r\n",
        body=body.encode() if isinstance(body, str) else body,
        address="192.0.2.1",
        started_at=0.0,
        elapsed=0.0,
        first_byte=0.0,
    )
    coding, content_type, is_ok = fields.get("content-encoding", ""), fields["content-type"], status == HTTPStatus.OK
    tags, link = robots_tags(noted_fields(raw)), fields.get("link", "")
    document = Document(
        exchange.body, target.href, coding, content_type, tags, is_ok, may_be_feed=is_ok, link_header=link
    )
    made = read(document, _LIMITS).describe(msgspec.structs.replace(made, exchange=exchange), content_type, None)
    if 300 <= status < 400 and "location" in fields:  # a crawl does not read its body
        with contextlib.suppress(BadUrl):
            links = (Link(canonicalize(fields["location"], target.href).href, LinkKind.REDIRECT),)
            made = msgspec.structs.replace(made, links=links, charset="", title="")
    return ParsedPage.of(made)


@checked
def recorded_items(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the items, by data set, that `crawler try --record` has saved in `folder` with their page. Raises UserError
    for a folder without a page."""
    return load(folder)[0].items


def _answer(page: ParsedPage) -> Exchange | FetchFailed | Refused:
    if page.exchange is not None:
        return page.exchange
    return FetchFailed(FailureKind(page.reason)) if page.reason in list(FailureKind) else Refused(page.reason)


@checked
def run_handler(
    router: Router,
    page: ParsedPage,
    settings: Mapping[str, Any] | None = None,
    store: SharedValues | None = None,
    answers: Iterable[ParsedPage] = (),
    **state: Any,
) -> Result:
    """Have `router` handle `page`. `settings`: the table `[app]`; `store`: the values in `crawl.store`, none if it is
    missing; `answers`: what `crawl.fetch` and `crawl.download` get for their URLs, besides what is saved with the page;
    `state`: what functions for the start have put into `crawl.state`. Works in programs with and without asyncio."""
    settled = app_settings(router, dict(settings or {}))

    async def call(folder: str) -> Handled:
        context = Context(settled, files=Path(folder) / FILES)
        if store is not None:
            context.store = store
        context.state.update(state)
        known = [(answer.url, _answer(answer)) for answer in answers]
        visit = KnownAnswers([*known, *((extra.exchange.url, extra.exchange) for extra in page.extras)])
        return await HandlerRunner(router, HandlersTable(timeout=math.inf), context).handle(page, visit)

    with ThreadPoolExecutor(1) as thread, TemporaryDirectory() as folder:  # a loop may run in this thread
        handled = thread.submit(asyncio.run, call(folder)).result()
    items: dict[str, list[dict[str, Any]]] = {}
    for item in handled.items:
        items.setdefault(item.name, []).append(item.fields)
    links, labels, sent = [], {}, {}
    for link in handled.added:
        try:
            url = with_key(canonicalize(link.url, handled.base or page.url), link.key).href
        except BadUrl:
            continue
        links.append(url)
        label, payload = label_of(link.tag), payload_of(link.tag)
        if label or payload:
            labels[url] = label, payload
        if request := request_of(link.tag):
            sent[url] = request.method, request.body
    return Result(handled.handler, items, links, labels, handled.error, handled.stop, handled.retry_after_s, sent)
