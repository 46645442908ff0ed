"""A crawl in a Python program: `crawler.Crawl`. It seeds a crawl and runs one replica of it in the event loop of
the caller.

This is the same replica that `crawler run` starts, on the same stores and with the same settings. Only `Crawl.run`
installs signal handlers, and the garbage collection does not change. It logs warnings to standard error unless the
program logs itself.

A loop over the crawl yields pages once they are settled. While `WAITING` of them wait for the body of the loop, no further
page is requested. Those in flight are settled meanwhile, and wait, too. So the body can make requests of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack, cast

import msgspec

from crawler.app.crawl_settings import adopt, check_installed, choose
from crawler.app.embedded_valkey import open_store
from crawler.app.engine import Dependencies, production_dependencies
from crawler.app.operator import RefusedSeed, queue_seeds, refused_seeds
from crawler.app.replica import Replica
from crawler.app.requests import local_tables, missing_tables, request_setup
from crawler.app.signals import on_fatal_signal
from crawler.app.supervisor import local_settings
from crawler.arguments import JsonDict, checked
from crawler.errors import FailureKind, FetchFailed, Refused, UserError
from crawler.events import Event, PageSettled
from crawler.fetch.client import HttpClient
from crawler.handlers.parsed_page import Download, ParsedPage, as_request
from crawler.handlers.requests import VisitRequests
from crawler.handlers.router import Context, Router, app_settings
from crawler.handlers.values import SharedValues, check_loop, running_loop
from crawler.logs import configure, log, logger
from crawler.page import Exchange, Outcome, Page
from crawler.request import Request, RequestOptions
from crawler.scope.seeds import Seed, read_seeds
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, load, missing_contact, option_of
from crawler.settings.policies import check, url_rules
from crawler.settings.tables import ReplicaTable, keys_of
from crawler.sinks.files import LINES, check_output_folder
from crawler.sinks.items import TABLE_FORMS, export_items, read_items, rejected_beside, without_items
from crawler.sinks.lines import files_of
from crawler.sinks.upload import Depot, UploadFailed
from crawler.wording import count_of
from crawler.worker.extra import PageVisit
from frontier.control import Control
from frontier.counters import Counters
from frontier.crawls import Crawl as StoredCrawl
from frontier.crawls import create_crawl, mark_local, open_crawl
from frontier.entries import PLAIN, PushMode, check_priority, tag_of
from frontier.errors import BadInput, NoSuchCrawl
from frontier.keys import check_crawl_name
from frontier.store import RedisStore
from frontier.urls import with_key

T = TypeVar("T")

WAITING = 100
"""Settled pages that may wait for the body of a loop, besides those that are in flight."""


NOTHING_LEFT = (
    "an earlier run has ended this crawl: give again=True to fetch its seeds again, or another replica.data_dir"
)

REQUEUE = "`crawler dead requeue --all` has them tried again"

PROGRESS_S = 5.0
"""Seconds between two lines of progress."""


class Stats(msgspec.Struct):
    """What one run of a program has settled so far. `done`, `denied`, `dead`: URLs by reason; `items`: by data set;
    `requests`: how many were sent, those for robots.txt included; `started_at`, `ended_at`: seconds since 1970, 0
    before."""

    done: dict[str, int] = {}
    denied: dict[str, int] = {}
    dead: dict[str, int] = {}
    items: dict[str, int] = {}
    requests: int = 0
    started_at: float = 0.0
    ended_at: float = 0.0

    @property
    def pages(self) -> int:
        """The number of pages, which `max_pages` limits."""
        return sum(self.done.values())

    @property
    def failures(self) -> dict[str, int]:
        """The URLs that ended without a page, by reason: dead, or with a status from 400 on."""
        return {reason: count for reason, count in self.done.items() if reason.startswith("http_")} | self.dead

    @property
    def seconds(self) -> float:
        """How long the run takes, or has taken."""
        return (self.ended_at or time.time()) - self.started_at if self.started_at else 0.0

    def __str__(self) -> str:
        failures, items = sum(self.failures.values()), sum(self.items.values())
        words = [count_of(self.pages, "page"), count_of(items, "item"), count_of(failures, "failure")]
        return f"{', '.join(words)}, {count_of(self.requests, 'request')} in {self.seconds:.0f} s"

    def count(self, page: Page) -> None:
        """Count a settled page."""
        reasons: dict[str, int] = getattr(self, page.outcome)
        reasons[page.reason] = reasons.get(page.reason, 0) + 1
        for item in page.items:
            self.items[item.name] = self.items.get(item.name, 0) + 1


class Crawl:
    """A crawl from `seeds`, one or several URLs and `Request`s. It ends when nothing is left, or after `max_pages` pages
    over all its runs (0: no limit).

    `handlers`: finds items on its pages. `settings`: the path of a settings file, or its tables as a dict, such as
    `{"politeness": {"delay": 2}}`. `name`: the name of the crawl, to have several in one store. `keep_open`: do not end
    when nothing is left, but wait for `add` or another program to queue more, until `stop` or `finish`. `again`: fetch
    the seeds also if an earlier run has, to find what is new there. `cookies`: keep those of each origin, as a login needs
    it: short for a table `{"cookies": True}` in `[[requests]]`. Its attribute `stats` says what this run has settled
    so far, and `loop` is the event loop that it runs in, None before: calls from another loop or thread go there, as
    `asyncio.run_coroutine_threadsafe(crawl.add(URL), crawl.loop)`.

    As with `crawler crawl`, the queue is in `.crawler` and the output in `crawl-out` unless the settings name others,
    and a crawl that exists there goes on where it stopped. It keeps its settings. Those that are given here as a dict,
    as `max_pages` or in the environment change its own one by one, and all others stay: also a `max_pages` of an
    earlier run. A settings file with tables of the crawl is the whole, as with `crawler crawl --apply-settings`: what
    it does not name becomes the default. `[replica]`, `[identity]` and `[[requests]]` are not kept: give them each
    time.
    """

    @checked
    def __init__(
        self,
        seeds: Iterable[str | Request] | str | Request = (),
        *,
        handlers: Router | None = None,
        max_pages: int | None = None,
        settings: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]] | Path | str | None = None,
        name: str = "crawl",
        keep_open: bool = False,
        again: bool = False,
        cookies: bool = False,
    ) -> None:
        try:
            check_crawl_name(name)
        except BadInput as error:
            raise UserError(str(error)) from None
        path = Path(settings) if isinstance(settings, (str, Path)) else None
        tables: dict[str, Any] = {}
        if isinstance(settings, Mapping):
            # A table that may be repeated is a list of tables.
            tables = {name: dict(table) if isinstance(table, Mapping) else table for name, table in settings.items()}
        if max_pages is not None:
            limits = tables.setdefault("limits", {})
            if isinstance(limits, dict):
                limits["max_pages"] = max_pages
        if cookies:
            tables["requests"] = [*tables.get("requests", ()), {"cookies": True}]
        arguments = {} if max_pages is None else {"limits.max_pages": "max_pages"}
        with _naming_settings():
            self._settings = load(path, tables, lambda name: arguments.get(name, "settings"))
        listed = [seeds] if isinstance(seeds, (str, Request)) else list(seeds)
        # Each with its tag.
        self._seeds = {one: tag_of("", None, one.request) if isinstance(one, Request) else "" for one in listed}
        self._router = handlers
        self._name = name
        self._keep_open = keep_open
        self._refused = set[str]()  # seeds of which the log says so
        self._mode: PushMode = "again" if again else "new"  # of the seeds
        self._stack = contextlib.AsyncExitStack()
        self.stats = Stats()
        self._replica: Replica | None = None
        self._context: Context | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._ending: asyncio.Task[None] | None = None
        self._pages: deque[Page] | None = deque()  # None if nobody will take them
        self._news = asyncio.Event()
        self._has_all = asyncio.Event()  # nobody waits for a page of this run any more
        self._is_stopping = False
        self._requests: dict[asyncio.Future[Any], PageVisit] = {}  # those of the program that are not answered

    def __repr__(self) -> str:
        return f"<Crawl {self._name} {self._replica!r}>"

    @checked
    def run(self, *, progress: bool = False) -> Stats:
        """Crawl to the end, and return what this run has settled. For programs without asyncio. `progress`: write how far
        it is to standard error, every five seconds. With `keep_open`, the end is when `stop` is called, by a handler or in
        another thread. Ctrl-C stops the crawl cleanly and raises KeyboardInterrupt. In the main thread, SIGTERM and SIGHUP
        stop it cleanly, too, and then end the process, unless the program handles them itself. Raises UserError for seeds
        and settings that cannot be used, and where an event loop runs: use `async with`."""
        received: list[int] = []

        async def whole() -> None:
            me = asyncio.current_task()
            assert me is not None

            def stop(number: int) -> None:
                received.append(number)
                if len(received) == 1:
                    me.cancel()
                elif self._replica is not None:
                    self._replica.engine.skips_grace = True

            on_fatal_signal(stop)
            async with self as crawl:
                await crawl._until_ended(progress)

        if running_loop() is not None:
            raise UserError("an event loop runs here: write `async with crawl: await crawl.finish()` instead of run()")
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # also where uvloop is installed
            try:
                runner.run(whole())
            except asyncio.CancelledError:
                if not received:
                    raise
        if received:  # the loop has given back what the system does with them
            signal.raise_signal(received[0])
        return self.stats

    @checked
    def items(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the items of the data set `name` in the output folder, from all runs of this crawl. Those of a run are
        there when it has ended. If there is none, a warning names the data sets that there are."""
        folder, is_empty = self._settings.replica.out, True
        files = files_of(folder, (LINES,), self._name) if folder.is_dir() else [folder]
        for item in read_items(files, name):
            is_empty = False
            yield msgspec.json.decode(item.json, type=dict[str, Any])
        if is_empty:
            log(logging.WARNING, "no_items", problem=without_items([folder], files, name))

    @checked
    def export(self, name: str, target: Path | str) -> int:
        """Write the items of the data set `name` in the output folder to a file, and return their number. `target`: a path
        that ends in `.jsonl`, `.csv` or `.parquet`, also in an object store, such as `s3://bucket/products.parquet`. Items
        are those of `items`. Those that the crawl has rejected are written to `NAME.rejected.jsonl` beside it, with a
        warning, and so is said if there are no items at all and the file has none.
        Raises UserError for what cannot be written, and for a `name` that none of the items there has."""
        folder, place, file_name = self._settings.replica.out, *str(target).rpartition("/")[::2]
        if Path(file_name).suffix[1:] not in TABLE_FORMS:
            raise UserError(f"{str(target)!r}: write a file that ends in .jsonl, .csv or .parquet")
        files = files_of(folder, (LINES,), self._name) if folder.is_dir() else [folder]
        if not files:  # it has not run, or elsewhere
            raise UserError(without_items([folder], files, name))
        depot = Depot.at(place, given_as="target") if "://" in place else None
        with tempfile.TemporaryDirectory(prefix="peercrawl-export-") as scratch:
            written = Path(target) if depot is None else Path(scratch) / file_name
            done = export_items(files, name, written, may_be_empty=True)
            try:
                for path in (written, rejected_beside(written)):
                    if depot is not None and path.exists():
                        depot.store(path, replaces=True)
            except UploadFailed as error:
                raise UserError(str(error)) from error
        if done.refused_count:
            log(logging.WARNING, "items_left_out", items=done.refused_count, first=done.refused[0].reason)
        return done.items

    @property
    def store(self) -> SharedValues:
        """The values that handlers share as `crawl.store`, until the end of `async with`. Raises RuntimeError before and
        after."""
        if self._context is None:
            raise RuntimeError("the crawl does not run: use `crawl.store` within `async with`, or in its handlers")
        return self._context.store

    @property
    def address(self) -> str:
        """The address of the live page, such as `http://127.0.0.1:41234/`; empty before the crawl has started. The setting
        `replica.listen` chooses the port."""
        return f"http://{self._replica.status.address}/" if self._replica is not None else ""

    @checked
    async def add(
        self,
        urls: Iterable[str | Request] | str | Request,
        priority: float | None = None,
        *,
        label: str = "",
        payload: JsonDict | None = None,
    ) -> int:
        """Queue `urls` while the crawl runs, and return how many are new. They are seeds: their domains are in the scope
        from now on. `priority`, `label` and `payload`: as in `Handle.enqueue`. Waits while Redis is away; URLs that it has
        got before that do not count as new. Raises UserError for URLs that cannot be fetched."""
        replica = self._started()
        if replica.engine.ended.is_set():
            raise RuntimeError("the crawl has ended")
        settings = replica.engine.follower.settings
        if priority is not None:
            check_priority(priority)
        listed = [urls] if isinstance(urls, (str, Request)) else list(urls)
        requests = {one: one.request if isinstance(one, Request) else PLAIN for one in listed}
        tags = {one: tag_of(label, payload, request) for one, request in requests.items()}
        seeds = await self._usable_seeds(settings, tags)
        if priority is not None:
            seeds = [msgspec.structs.replace(seed, priority=priority) for seed in seeds]
        retry = replica.engine.runtime.retry
        pushed = await retry.call(lambda: queue_seeds(replica.store, replica.crawl, seeds, settings))
        return pushed.accepted

    @checked
    async def fetch(self, url: str | Request, **request: Unpack[RequestOptions]) -> ParsedPage:
        """As `Handle.fetch`, in a loop over the crawl or beside it: the answer is archived, but belongs to no page, and the
        request waits for its turn for as long as it takes. Raises RuntimeError unless the crawl runs; it does until the
        loop has had its last page. If the crawl ends before the answer, raises FetchFailed with the reason `stopped`."""
        wanted = as_request(url, request)
        return await self._answer(lambda requests: requests.fetch(wanted))

    @checked
    async def download(self, url: str | Request, **request: Unpack[RequestOptions]) -> Download:
        """As `Handle.download`, and where `fetch` may be called."""
        wanted = as_request(url, request)
        return await self._answer(lambda requests: requests.download(wanted))

    async def _answer(self, begin: Callable[[VisitRequests], Coroutine[Any, Any, T]]) -> T:
        """Return what the request that `begin` makes is answered with."""
        engine = self._started().engine
        if self._is_stopping or engine.control.stopped:
            raise RuntimeError("the crawl has ended")
        assert self._context is not None
        visit = engine.extra.begin_without_page()
        request = asyncio.create_task(begin(VisitRequests(None, visit, self._context.files)))
        self._requests[request] = visit
        try:
            await asyncio.wait([request])
            if request.cancelled() or (visit.is_over and isinstance(request.exception(), Refused)):
                raise FetchFailed(FailureKind.STOPPED)
            return request.result()
        finally:
            request.cancel()
            del self._requests[request]

    def stop(self) -> None:
        """End this run, from any thread: requests in flight end, within `replica.grace` seconds, and are committed. What is
        queued stays there for the next run. Changes nothing after the end."""
        if self._replica is None or self.loop is None:
            raise RuntimeError("the crawl does not run yet")
        if self._ending is None or not self._ending.done():
            self.loop.call_soon_threadsafe(self._replica.engine.ended.set)

    def _started(self) -> Replica:
        """The replica. Raises RuntimeError before the start, and in another event loop."""
        if self._replica is None:
            raise RuntimeError("the crawl does not run yet: use `async with`")
        check_loop(self.loop)
        return self._replica

    async def __aenter__(self) -> Crawl:
        """Start crawling. Raises UserError for seeds and settings that cannot be used."""
        _refuse_uvloop()
        if self._ending is not None:
            raise RuntimeError("a Crawl runs once: create another one to continue")
        async with self._stack as stack:
            with _naming_settings():
                self.loop = asyncio.get_running_loop()
                self._replica = await self._start(stack)
                self.stats.started_at = time.time()
            self._stack = stack.pop_all()
        self._ending = asyncio.create_task(self._end_with(self._replica))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the crawl if it still runs: requests in flight end, within `replica.grace` seconds, and are
        committed."""
        assert self._replica is not None
        assert self._ending is not None
        self._replica.engine.ended.set()
        self._keep_no_pages()
        try:
            await asyncio.shield(self._ending)
        finally:
            if not self._ending.done():  # this task was cancelled again
                self._replica.engine.skips_grace = True
                await asyncio.wait([self._ending])
            await self._stack.aclose()
            self._context = None
        self._raise_failure()

    @checked
    async def finish(self, *, progress: bool = False) -> None:
        """Crawl to the end, which is when nothing is left, also with `keep_open`. Pages are not kept for a loop from now
        on. `progress`: as in `run`."""
        replica = self._started()
        if self._keep_open:
            self._keep_open = False
            replica.engine.end_when_empty()
        await self._until_ended(progress)

    async def _until_ended(self, progress: bool) -> None:
        ending = self._ending
        assert ending is not None
        self._keep_no_pages()
        if progress:
            await self._tell_progress(ending)
        await asyncio.shield(ending)
        self._raise_failure()

    async def _tell_progress(self, ending: asyncio.Task[None]) -> None:
        sys.stderr.write(f"live page: {self.address}\n")
        while not ending.done():
            await asyncio.wait([ending], timeout=PROGRESS_S)
            sys.stderr.write(f"{self.stats}\n")

    def __aiter__(self) -> Crawl:
        return self

    async def __anext__(self) -> ParsedPage:
        """Return the next page that is settled, whatever its outcome."""
        replica, ending = self._started(), self._ending
        assert ending is not None
        while not self._pages:
            if replica.engine.ended.is_set():
                self._has_all.set()
            if ending.done() or self._pages is None:
                await ending
                self._raise_failure()
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return ParsedPage.of(self._pages.popleft())

    async def _start(self, stack: contextlib.AsyncExitStack) -> Replica:
        settings = self._settings
        if not logger.hasHandlers():  # otherwise warnings would lack their fields
            level = settings.replica.log_level if settings.names("replica.log_level") else "warning"
            configure(settings.replica.log_format, level)
        check(settings)
        check_installed(settings)
        if self._router is not None and settings.handlers.app:
            raise UserError("give either handlers or the setting handlers.app, not both")
        setup = request_setup(settings)
        check_output_folder(settings.replica.out)
        if not settings.replica.redis and not settings.replica.data_dir.exists():
            await self._usable_seeds(settings.crawl)  # raises an error before anything is created
        store = await stack.enter_async_context(open_store(settings.replica))
        opened, seeds = await self._open(store)
        stored = CrawlSettings.from_json(opened.settings)
        check_guarded(stored, accepted(settings))
        check_installed(stored)
        if problem := missing_contact(stored):
            log(logging.WARNING, "no_contact", problem=problem)
        for problem in missing_tables(settings, opened.local):
            log(logging.WARNING, "without_local_settings", problem=problem)
        before = await Counters(store, opened.keys).counts()
        is_full = 0 < stored.limits.max_pages <= before.done
        if is_full:
            log(logging.WARNING, "page_limit_reached", max_pages=stored.limits.max_pages)
        await mark_local(store, opened, local_tables(settings))
        local = local_settings(settings)
        deps = production_dependencies(opened, store, stored, local, setup, router=self._router)
        deps.events.subscribe(self._take, PageSettled)
        deps = msgspec.structs.replace(deps, http=cast(HttpClient, _CountedRequests(deps.http, self.stats)))
        deps = self._adapted(deps)
        pushed = await queue_seeds(store, opened, seeds, stored, self._mode)
        is_idle = not (before.open or pushed.accepted or stored.recrawl.rules or is_full or self._keep_open)
        if is_idle and (before.done or before.dead):
            failed = f"; {count_of(before.dead, 'URL')} failed: {REQUEUE}" if before.dead else ""
            log(logging.WARNING, "nothing_left", problem=NOTHING_LEFT + failed)
        await Control(store, opened.keys).set("run")
        replica, self._context = Replica(store, deps, stored, local), deps.context
        replica.engine.committer.is_reader_behind = lambda: len(self._pages or ()) >= WAITING
        await replica.start(until_empty=not self._keep_open)
        return replica

    def _adapted(self, deps: Dependencies) -> Dependencies:
        """Return the dependencies of the engine: a subclass may replace some."""
        return deps

    def _parsed(self, tags: Mapping[str | Request, str], settings: CrawlSettings) -> list[Seed]:
        listed = list(tags)
        texts = (one.url if isinstance(one, Request) else one for one in listed)
        seeds, errors = read_seeds(texts, url_rules(settings))
        if errors:
            raise UserError(
                f"seed {errors[0].text!r} cannot be used ({errors[0].reason}): write it as https://HOST/PATH"
            )

        def tagged(seed: Seed) -> Seed:
            one = listed[seed.line - 1]
            key = one.key if isinstance(one, Request) else ""
            return msgspec.structs.replace(seed, url=with_key(seed.url, key), tag=tags[one])

        return list(map(tagged, seeds))

    def _describe(self, refused: RefusedSeed) -> str:
        """Return why a seed cannot be fetched, and the settings that allow it: a program has no options of commands."""
        typed = [option.split() for option in refused.options]
        ports = [int(value) for option, value in typed if option == "--port"]
        allow = [value for option, value in typed if option == "--allow"]
        settings = {"fetch": {key: values for key, values in (("ports", ports), ("allow", allow)) if values}}
        return f"{refused.url}: {', and '.join(refused.reasons)}; give {settings=}"

    async def _usable_seeds(
        self, settings: CrawlSettings, tags: Mapping[str | Request, str] | None = None
    ) -> list[Seed]:
        """Return the seeds, or those in `tags`, that a crawl with `settings` can fetch. Raises UserError if there are only
        others, and for settings with which the handlers cannot be used."""
        if self._router is not None:
            app_settings(self._router, settings.app)  # raises an error
        if self._router is not None and not settings.archive.pages:
            raise UserError("handlers need archive.pages = true: items are written in the lines of pages")
        seeds = self._parsed(self._seeds if tags is None else tags, settings)
        refused = await refused_seeds(seeds, settings, self._settings.requests)
        if seeds and len(refused) == len(seeds):
            raise UserError(f"no seed can be fetched: {self._describe(next(iter(refused.values())))}")
        for one in refused.values():
            if one.url not in self._refused:
                self._refused.add(one.url)
                log(logging.WARNING, "seed_refused", url=one.url, reason=", and ".join(one.reasons))
        return [seed for seed in seeds if seed not in refused]

    async def _open(self, store: RedisStore) -> tuple[StoredCrawl, list[Seed]]:
        """Return the crawl, and the seeds that it can fetch. If it exists, the settings that were given change its
        own."""
        try:
            existing = await open_crawl(store, self._name)
        except NoSuchCrawl:
            created = self._settings.created
            seeds = await self._usable_seeds(created)
            if not seeds and not self._keep_open:
                raise UserError(f"there is no crawl {self._name!r} yet, and no seed") from None
            missing_contact(created)  # raises an error
            existing = await create_crawl(store, self._name, created.frontier.shards, created.to_json())
            if existing.created:
                return existing, seeds
        choice = choose(existing, self._settings, "apply")
        seeds = await self._usable_seeds(choice.settings)
        return await adopt(store, existing, choice), seeds

    async def _end_with(self, replica: Replica) -> None:
        try:
            await replica.engine.ended.wait()
            self._news.set()
            await self._has_all.wait()
            self._is_stopping = True
            for visit in self._requests.values():
                visit.is_over = True  # it sends nothing more
            await replica.stop()
        finally:
            for request in self._requests:
                request.cancel()
            self.stats.ended_at = time.time()
            self._news.set()

    def _take(self, event: Event) -> None:
        if not isinstance(event, PageSettled) or event.page.outcome is Outcome.RETRY:
            return
        self.stats.count(event.page)
        if self._pages is None:
            return
        self._pages.append(event.page)
        self._news.set()

    def _keep_no_pages(self) -> None:
        self._pages = None
        self._has_all.set()
        self._news.set()

    def _raise_failure(self) -> None:
        assert self._replica is not None
        if (failure := self._replica.engine.tasks.failure) is not None:
            with _naming_settings():
                raise failure


def _refuse_uvloop() -> None:
    """Raise UserError if uvloop runs this code, which lacks parts of asyncio's sockets, or would start its processes."""
    if type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        raise UserError(
            "a crawl cannot run in uvloop's event loop: use that of asyncio (uvicorn --loop asyncio), or a thread: "
            "await asyncio.to_thread(crawl.run)"
        )
    if sys.version_info < (3, 12) and type(asyncio.get_event_loop_policy()).__module__.startswith("uvloop"):
        raise UserError("before Python 3.12, a crawl cannot run after uvloop.install(): use uvloop.run(main())")


_SETTINGS = {option_of(f"replica.{key}"): f"replica.{key}" for key in keys_of(ReplicaTable)}
"""Option -> setting."""


@contextlib.contextmanager
def _naming_settings() -> Iterator[None]:
    """Name settings instead of options in a UserError, which has the words of the command line, and add its details. What
    is in backticks is a command to type."""
    try:
        yield
    except UserError as error:
        whole = "\n".join((str(error), *error.details))
        words = re.sub(r"`[^`]*`|--[a-z-]+", lambda found: _SETTINGS.get(found[0], found[0]), whole)
        error.reword(lambda _: words)
        raise


class _CountedRequests:
    """An HTTP client that counts its requests in `stats`."""

    def __init__(self, http: HttpClient, stats: Stats) -> None:
        self._http = http
        self._stats = stats

    def __getattr__(self, name: str) -> Any:
        return getattr(self._http, name)

    def fetch(self, *request: Any, **options: Any) -> Awaitable[Exchange]:
        self._stats.requests += 1
        return self._http.fetch(*request, **options)
