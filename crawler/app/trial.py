"""Fetches one page as a crawl would, and says what became of it: the loop in which handlers and settings are written.

It is a crawl of one page with a store and an output folder of its own, which are removed at the end. So robots.txt,
scope, handlers and the archive work as in the crawl itself, and nothing of a real crawl changes.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from crawler.app.engine import Dependencies
from crawler.app.operator import RefusedSeed
from crawler.app.program import Crawl
from crawler.errors import FetchFailed, UserError
from crawler.events import Event, LinkDropped, LinksPushed, OwnFailure, PageSettled, UrlPostponed
from crawler.fetch.client import HttpClient
from crawler.handlers.parsed_page import ParsedPage
from crawler.handlers.recorded import save
from crawler.handlers.router import Router, name_of
from crawler.page import Exchange, Outcome, Page
from crawler.parse.extraction import ExtractionJob, FieldReport, RuleReport
from crawler.parse.needs_scripts import Need, needs_scripts
from crawler.parse.tags import TakesLong
from crawler.scope.extract_rules import SOURCES, ExtractRule, FieldRule
from crawler.settings.load import Settings
from crawler.settings.policies import extract_rules, url_rules
from crawler.wording import count_of
from crawler.worker.extra import IS_EXTRA
from frontier.entries import Entry, parse_entry
from frontier.keys import CrawlKeys
from frontier.scripts import command
from frontier.store import Store
from frontier.urls import UrlRules, canonicalize

_REASONS = {"size": "too long", "unread": "takes too long to find"}


def findings(page: Page, settings: Settings, router: Router | None) -> list[str]:
    """Return what each `[[extract]]` and the handlers of `router` made of `page`, in a line each."""
    rules = extract_rules(settings)
    if not rules and router is None:
        return ["nothing looks for items: there is neither [[extract]] nor a handler"]
    if page.outcome is not Outcome.DONE and not page.handler_error:
        return [f"nothing looks for items: the page is {page.outcome.value} ({page.reason})"]
    if page.exchange is None or not 200 <= page.exchange.status < 300:
        return ["nothing looks for items: only pages with a 2xx status have them"]
    lines = [f"[[extract]] {rule.name}: {_of_rule(rule, page, settings.limits.max_decoded)}" for rule in rules]
    return lines if router is None else [*lines, f"handlers: {_of_handlers(router, page)}"]


def _of_rule(rule: ExtractRule, page: Page, max_decoded: int) -> str:
    assert page.shown is not None
    if not page.has_type(rule.content_type):
        return f"not for this page, which is {page.content_type or 'of no type'}, not {rule.content_type}"
    if not rule.applies(page):
        return f"not for this page: match {rule.match!r} is not found in its URL"
    try:
        report = ExtractionJob.of(page, (rule,), max_decoded).report(page.shown.body)
    except TakesLong:
        return "applies, but the page is too large to say here what each field has found"
    if not report.elements and report.unread:
        return "; ".join(report.unread)
    if not report.elements:
        return f"0 items: each = {rule.each!r} selects no element"
    problems = "; ".join([*_problems(rule.fields, report), *report.unread])
    return count_of(report.items, "item") + (f": {problems}" if problems else "")


def _problems(fields: Sequence[FieldRule], report: RuleReport) -> Iterator[str]:
    for field in fields:
        of = report.fields[field.name]
        if of.missing and (field.required or not of.found + of.unusable):
            required = "required, " if field.required else ""
            yield f"{field.name}: {required}nothing found{_share(of.missing, report)}{_source(field)}"
        if of.unusable:
            yield f"{field.name}: {_unusable(field, of)}{_share(of.unusable, report)}{_source(field)}"


def _unusable(field: FieldRule, of: FieldReport) -> str:
    return f"{of.value!r} is not of type {field.type}" if of.reason == "type" else _REASONS.get(of.reason, of.reason)


def _share(number: int, report: RuleReport) -> str:
    return "" if report.elements == 1 else f" in {number:,} of {report.elements:,} elements"


def _source(field: FieldRule) -> str:
    parts = [f"{name} '{text}'" for name in (*SOURCES[:-1], "attr", "regex") if (text := getattr(field, name))]
    return f" ({', '.join(parts)})" if parts else ""


def _of_handlers(router: Router, page: Page) -> str:
    if page.handler_error and page.exchange is not None:  # its handler got it as done, and then failed
        page = replace(page, outcome=Outcome.DONE)
    if (route := router.route_of(page)) is not None:
        return f"{name_of(route.function)} was called"
    return f"none is for this page: {', '.join(router.conditions) or 'the router has none'}"


MOST = 10_000
"""Queued URLs of a domain that are read."""

ENDED_S = 30.0
"""Seconds for robots.txt and for starting and ending the crawl, besides those that `fetch` allows for the page."""


class Trial(msgspec.Struct, frozen=True):
    """What became of one page: its `outcome` and the `reason`, the `status` (None without a response), the error of its
    handler, its items, the first of its items that are rejected and how many are, and its links. `findings`: why a
    request failed, what each `[[extract]]` and the handlers have found, and why not more, in a line each. `queued`: the
    URLs that a crawl would fetch, with depth and priority, the highest priority first. `dropped`: how many links it
    would not fetch, by reason. `rendered`: what its browser has done, None if it was in none.
    `needs_browser`: what `render.mode = "auto"` takes it for, None if it is no HTML page: `no` and `yes`, or `ask` if only
    samples of its shape tell."""

    url: str
    outcome: str
    reason: str
    status: int | None
    content_type: str
    title: str
    handler_error: str
    items: list[dict[str, Any]]
    rejected: list[str]
    rejected_count: int
    findings: list[str]
    links: list[str]
    queued: list[dict[str, Any]]
    dropped: dict[str, int]
    rendered: dict[str, Any] | None = None
    needs_browser: Need | None = None


class _OnePage(Crawl):
    """A crawl that ends with its first page, or when it is put off."""

    def __init__(self, url: str, settings: Settings, tag: str) -> None:
        super().__init__([url])
        self._settings = settings
        self._seeds = {url: tag}
        self.dropped = Counter[str]()
        self.router: Router | None = None
        self.http: _OneRequest | None = None
        self.postponed = ""

    async def queued(self) -> list[Entry]:
        """Return what is queued now, which is what the page has led to."""
        assert self._replica is not None
        return await queued(self._replica.store, self._replica.crawl.keys)

    def _describe(self, refused: RefusedSeed) -> str:
        return str(refused)

    def _adapted(self, deps: Dependencies) -> Dependencies:
        self.router = deps.router
        deps.events.subscribe(self._observe, LinkDropped, LinksPushed, OwnFailure, PageSettled, UrlPostponed)
        rules = url_rules(self._settings)
        self.http = _OneRequest(deps.http, self._parsed(self._seeds, self._settings)[0].url.href, rules)
        return msgspec.structs.replace(deps, http=cast(HttpClient, self.http))

    def _observe(self, event: Event) -> None:
        match event:
            case LinkDropped(reason, count):
                self.dropped[reason] += count
            case LinksPushed(_, _, capped, outside):
                self.dropped += Counter(outside=outside, capped=capped)
            case PageSettled():
                self._end()
            case UrlPostponed(reason) | OwnFailure(error=reason):
                self.postponed = reason
                self._end()
            case _:
                pass

    def _end(self) -> None:
        assert self._replica is not None
        self._replica.engine.ended.set()
        self._replica.engine.skips_grace = True


class _OneRequest:
    """An HTTP client that requests `url`, and no other page after that: whoever asks waits until it is cancelled. A page
    whose handler fails would not count as the one page of the crawl, and the next URL would have its turn. If `url`
    redirects to itself, it is requested once more, perhaps in another way of writing. `failure`: of the last request
    that has failed, and not succeeded later, in words."""

    def __init__(self, http: HttpClient, url: str, rules: UrlRules) -> None:
        self._http = http
        self._url = url
        self._rules = rules
        self._is_over = False
        self.failure = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._http, name)

    async def fetch(self, url: str, **options: Any) -> Exchange:
        is_the_one = canonicalize(url, rules=self._rules).href == self._url
        if self._is_over and not is_the_one and not IS_EXTRA.get():
            await asyncio.Event().wait()
        self._is_over = self._is_over or is_the_one
        try:
            exchange = await self._http.fetch(url, **options)
        except FetchFailed as error:
            self.failure = f"{url}: {error.in_words}"
            raise
        if self.failure.startswith(f"{url}: "):  # another try, such as at another address of the host
            self.failure = ""
        return exchange


async def queued(store: Store, keys: CrawlKeys) -> list[Entry]:
    """Return the queued URLs, the highest priority first. For small crawls. Raises RedisAway."""
    found: list[Entry] = []
    for shard in keys.shards:
        (domains,) = await store.send([command("ZRANGE", shard.due, 0, -1)])
        for domain in (name.decode() for name in domains):
            (rows,) = await store.send([command("ZRANGE", shard.queue(domain), 0, MOST, "WITHSCORES")])
            pairs = zip(rows[::2], rows[1::2], strict=True)
            found += [parse_entry(raw.decode(), domain, float(priority)) for raw, priority in pairs]
    return sorted(found, key=lambda entry: (-entry.priority, entry.url))


async def try_url(
    url: str, settings: Settings, tag: str = "", record: Path | None = None, screenshot: Path | None = None
) -> Trial:
    """Fetch `url`, which has the label and payload in `tag`, with `settings`, but one time at most. Only the page is kept,
    in the folder `record` if there is one, and its screenshot in the file `screenshot`. Raises UserError if it cannot be
    fetched now."""
    patience_s = settings.fetch.timeout + settings.fetch.connect_timeout + settings.render.time + ENDED_S
    with tempfile.TemporaryDirectory(prefix="peercrawl-try-") as folder:
        crawl = _OnePage(url, _alone(settings, Path(folder)), tag)
        try:
            async with asyncio.timeout(patience_s), crawl:
                page = await anext(aiter(crawl), None)
                await crawl.finish()
                entries = [entry for entry in await crawl.queued() if page is None or entry.url != page.url]
        except TimeoutError:
            raise UserError(f"{url} was not fetched within {patience_s:g} s") from None
    if page is None:
        raise UserError(f"{url} cannot be fetched now: {crawl.postponed or 'the crawl ended without it'}")
    if record is not None:
        save(page, record)
    if screenshot is not None and page.rendered is not None:
        await asyncio.to_thread(screenshot.write_bytes, page.rendered.screenshot)
    found = findings(page, settings, crawl.router)
    if crawl.http is not None and crawl.http.failure:
        found = [crawl.http.failure, *found]
    return _told(page, entries, crawl.dropped, found)


def _alone(settings: Settings, folder: Path) -> Settings:
    """Return `settings` for a crawl of one page in `folder`, without copies elsewhere and without further tries."""
    return replace(
        settings,
        limits=replace(settings.limits, max_pages=1),
        politeness=replace(settings.politeness, tries=1),
        archive=replace(
            settings.archive,
            warc=False,
            index=False,
            pages=True,
            parquet=False,
            upload="",
            sinks=(),
            on_page=(),
            requisites=False,
        ),
        replica=replace(settings.replica, redis="", data_dir=folder / "data", out=folder / "out", concurrency=1),
    )


def _told(page: Page, entries: list[Entry], dropped: Counter[str], found: list[str]) -> Trial:
    return Trial(
        url=page.url,
        outcome=page.outcome.value,
        reason=page.reason,
        status=page.exchange.status if page.exchange else None,
        content_type=page.content_type,
        title=page.title,
        handler_error=page.handler_error,
        items=[{"data_set": item.name, "item": item.fields} for item in page.items],
        rejected=list(map(str, page.rejected)),
        rejected_count=page.rejected_count,
        findings=found,
        links=[link.url for link in page.links],
        queued=[{"url": entry.url, "depth": entry.depth, "priority": entry.priority} for entry in entries],
        dropped=dict(dropped),
        rendered=_of_browser(page),
        needs_browser=_need(page),
    )


def _need(page: Page) -> Need | None:
    if page.outcome is not Outcome.DONE or page.exchange is None or not page.has_type("text/html"):
        return None
    static = ParsedPage.of(page).static
    return needs_scripts(static.body, static.charset or None, len(static.select("a[href]")))


def _of_browser(page: Page) -> dict[str, Any] | None:
    if (rendered := page.rendered) is None:
        return None
    loaded = Counter(extra.kind for extra in page.extras)
    return {
        "outcome": rendered.outcome,
        "seconds": round(rendered.elapsed, 2),
        "requests": rendered.requests,
        "loaded": dict(loaded),
        "refused": dict(rendered.refused),
        "failed_steps": list(rendered.failed_steps),
    }
