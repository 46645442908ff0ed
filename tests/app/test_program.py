"""`crawler.Crawl` in programs: in a running event loop, with a loop that ends early, and with Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from crawler import Context, Crawl, FetchFailed, Handle, Outcome, ParsedPage, Retry, Router, Stats, UserError
from crawler.app.embedded_valkey import open_store
from crawler.app.engine import Dependencies
from crawler.app.operator import requeue
from crawler.events import Event, LinkDropped
from crawler.settings.load import CrawlSettings, load
from crawler.worker.worker import HANDED_ON
from frontier.crawls import open_crawl
from tests.e2e.harness import PATIENCE_S, ROOT, wait_until
from tests.site import Reply, Request, Site
from tests.valkey import ValkeyProcess

PAGES = 40


def tree(request: Request) -> str | None:
    """Page n links to pages 2n+1 and 2n+2."""
    name = request.path.strip("/") or "0"
    if not name.isdecimal():
        return None
    number = int(name)
    links = "".join(f'<a href="/{one}">' for one in (2 * number + 1, 2 * number + 2) if one < PAGES)
    return f"<h1>page {number}</h1>{links}"


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(tree) as site:
        yield site


@pytest.fixture
def settings(site: Site, tmp_path: Path) -> dict[str, dict[str, Any]]:
    return site.settings(tmp_path)


class Shop(msgspec.Struct):
    shop: int


router = Router()


@router.handler(r"/13$")
def broken(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("headings", {"text": "lost"})
    raise ValueError("the thirteenth")


@router.handler(r"/1$")
async def chosen(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("headings", {"text": page.select_text("h1")})
    await crawl.drop()
    await crawl.enqueue(["/4", "https://b.test/outside", "http://[bad"], priority=9)


@router.handler()
def heading(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("headings", {"text": page.select_text("h1")})


def headings(crawl: Crawl) -> list[str]:
    return sorted(item["text"] for item in crawl.items("headings"))


def below(root: int) -> set[int]:
    return {root}.union(*(below(one) for one in (2 * root + 1, 2 * root + 2) if one < PAGES))


VISITED = ({0, 1} | below(4) | below(2)) - {27, 28}  # only the page whose handler fails links to these two


async def test_a_loop_gets_every_page_once_and_items_are_in_the_output(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """In a running event loop, as in a notebook. One page's handler fails, and another one chooses its links."""
    async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        pages = {page.url: page async for page in crawl}
    assert {int(url.rpartition("/")[2] or 0) for url in pages} == VISITED
    failed = pages["http://a.test/13"]
    assert (failed.outcome, failed.reason, failed.items) == (Outcome.DEAD, "handler_failed", ())
    assert failed.handler_error.startswith("ValueError: the thirteenth (test_program.py:")
    assert pages["http://a.test/2"].items[0].fields == {"text": "page 2"}
    assert headings(crawl) == sorted(f"page {number}" for number in VISITED - {13})
    assert headings(Crawl(settings=settings, name="other")) == []  # in the same folder
    assert list(crawl.items("heading")) == []
    problem = logged(caplog, "problem")[-1]
    assert "no item of a data set 'heading'" in problem
    assert "data sets there: headings" in problem


@pytest.mark.parametrize("fails", ["handler", "crawler"])
async def test_links_get_their_labels_when_the_handler_is_repaired(
    settings: dict[str, Any], fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it is the crawler that cannot apply what the handler asks for."""

    def with_labels(is_broken: bool) -> Router:
        labelling = Router()

        @labelling.handler(label="leaf")
        def leaf(page: ParsedPage, crawl: Handle) -> None:
            crawl.push("headings", {"text": page.select_text("h1")})

        @labelling.handler(r"/$")
        def listing(page: ParsedPage, crawl: Handle) -> None:
            if is_broken:
                raise ConnectionError("the database is away")
            crawl.drop()
            crawl.enqueue(["/1", "/2"], label="leaf")

        return labelling

    limits = settings | {"scope": {"max_depth": 1}}
    with monkeypatch.context() as patched:
        if fails == "crawler":
            patched.setattr("crawler.worker.page.PageBuilder.relinked", Mock(side_effect=ZeroDivisionError))
        async with Crawl(["http://a.test/"], handlers=with_labels(fails == "handler"), settings=limits) as crawl:
            (failed,) = [page async for page in crawl]
    assert failed.reason == ("handler_failed" if fails == "handler" else "defect")
    async with open_store(load(None, {"replica": settings["replica"]}).replica) as store:
        assert await requeue(store, await open_crawl(store, "crawl"), None, failed.reason) == 1
    async with Crawl(handlers=with_labels(False), settings=limits) as crawl:
        await crawl.finish()
    assert headings(crawl) == ["page 1", "page 2"]


async def test_after_a_break_and_an_error_another_run_goes_on(settings: dict[str, Any]) -> None:
    first = Crawl(
        ["http://a.test/"], handlers=router, settings=settings | {"replica": {**settings["replica"], "concurrency": 1}}
    )
    async with first as crawl:
        async for _ in crawl:
            break
    with pytest.raises(ZeroDivisionError):
        async with Crawl(handlers=router, settings=settings) as crawl:
            async for page in crawl:
                1 / (page.depth - page.depth)
    async with Crawl(handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert headings(crawl) == sorted(f"page {number}" for number in VISITED - {13})
    assert asyncio.all_tasks() == {asyncio.current_task()}
    with pytest.raises(RuntimeError, match="runs once"):
        await crawl.__aenter__()


async def test_a_page_whose_handler_still_runs_at_the_end_is_left_to_the_next_run(settings: dict[str, Any]) -> None:
    stuck = Router()
    began = asyncio.Event()

    @stuck.handler(r"/2$")
    async def never(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("headings", {"text": page.select_text("h1")})
        began.set()
        await asyncio.Event().wait()

    stuck.handler()(heading)
    brief = settings | {"replica": {**settings["replica"], "grace": 0.1}}
    async with Crawl(["http://a.test/"], handlers=stuck, max_pages=PAGES, settings=brief) as crawl:
        await began.wait()
    assert "page 2" not in headings(crawl)
    again = Router()
    again.handler()(heading)
    async with Crawl(handlers=again, settings=settings) as crawl:
        await crawl.finish()
    assert headings(crawl) == sorted(f"page {number}" for number in range(PAGES))


async def test_a_slow_loop_holds_up_the_crawl(
    settings: dict[str, Any], site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.app.program.WAITING", 2)
    own = settings | {"politeness": {"delay": 0.01}}
    async with asyncio.timeout(PATIENCE_S), Crawl(["http://a.test/"], settings=own) as crawl:
        seen = 0
        async for _ in crawl:
            seen += 1
            if seen == 1:
                await asyncio.sleep(3)
                assert len(site.answered) < PAGES / 2
    assert seen == PAGES


async def test_the_body_of_a_loop_that_is_behind_makes_requests_to_the_site_that_is_crawled(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for the body cannot hold up the request that the body waits for."""
    monkeypatch.setattr("crawler.app.program.WAITING", 1)
    own = settings | {"politeness": {"delay": 0.01}, "limits": {"max_pages": 8}}
    async with asyncio.timeout(PATIENCE_S), Crawl(["http://a.test/"], settings=own) as crawl:
        await asyncio.sleep(1)
        answers = [(await crawl.fetch(f"{page.url}?again")).status async for page in crawl]
    assert len(answers) == 8


async def test_a_request_of_the_program_ends_with_the_crawl(settings: dict[str, Any]) -> None:
    own = settings | {"politeness": {"delay": 1}}
    async with asyncio.timeout(PATIENCE_S):
        async with Crawl("http://a.test/38", settings=own) as crawl:
            requests = [asyncio.create_task(crawl.fetch(f"http://a.test/{number}")) for number in range(20)]
            await crawl.finish()
            await crawl.store.set("n", 1)
        failures = await asyncio.gather(*requests, return_exceptions=True)
        with pytest.raises(RuntimeError, match="within `async with`"):
            _ = crawl.store
    assert {type(failure) for failure in failures} <= {FetchFailed, ParsedPage}
    assert {failure.reason for failure in failures if isinstance(failure, FetchFailed)} == {"stopped"}


def test_the_blocking_form_ends_with_the_crawl_and_obeys_the_limit(settings: dict[str, Any]) -> None:
    crawl = Crawl("http://a.test/", handlers=router, max_pages=3, settings=settings)
    crawl.run()
    assert len(headings(crawl)) == 3


@pytest.fixture
def on_loopback(settings: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The URL of the site, and settings that allow it."""
    (port,) = [entry.rpartition(":")[2] for entry in settings["fetch"]["host_map"]]
    return f"http://127.0.0.1:{port}/", settings | {"fetch": {"allow": ["127.0.0.1"], "ports": [int(port)]}}


async def stored(settings: dict[str, Any]) -> CrawlSettings:
    async with open_store(load(None, {"replica": settings["replica"]}).replica) as store:
        return CrawlSettings.from_json((await open_crawl(store, "crawl")).settings)


def test_failures_have_handlers_and_a_run_returns_what_it_has_settled(settings: dict[str, Any]) -> None:
    router = Router()

    @router.on_failure(r"/38", kind=404)
    def missing(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("missing", {"url": page.url, "body": page.body.decode()})
        crawl.enqueue("/39", label="instead")

    @router.on_failure(kind="http_520")
    def broken(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("broken", {"url": page.url, "status": page.status, "outcome": page.outcome.value})

    @router.handler()
    def good(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("good", {"label": page.label})

    replies = {"/0": Reply("broken", 520), "/39": Reply("good")}
    with Site(lambda request: replies.get(request.path, Reply("none", 404))) as site:
        own = settings | {"fetch": {"host_map": site.host_map("a.test")}, "politeness": {"delay": 0, "tries": 1}}
        crawl = Crawl(["http://a.test/0", "http://a.test/38"], handlers=router, settings=own)
        stats = crawl.run()
    assert list(crawl.items("missing")) == [{"url": "http://a.test/38", "body": "none"}]
    assert list(crawl.items("broken")) == [{"url": "http://a.test/0", "status": 520, "outcome": "dead"}]
    assert list(crawl.items("good")) == [{"label": "instead"}]
    assert (stats.done, stats.dead, stats.items) == (
        {"http_404": 1, "ok": 1},
        {"http_520": 1},
        {"missing": 1, "broken": 1, "good": 1},
    )
    assert stats.pages == 2
    assert stats.ended_at > stats.started_at > 0


def test_a_handler_has_its_page_fetched_again_until_the_last_try(settings: dict[str, Any], site: Site) -> None:
    router, tried = Router(), list[float]()

    @router.handler(r"/1$")
    def late(page: ParsedPage, crawl: Handle) -> None:
        tried.append(time.monotonic())
        crawl.push("pages", {"try": len(tried)})
        crawl.enqueue("/2")
        if len(tried) < 3:
            raise Retry("not yet", after=1.0)

    @router.handler(r"/5$")
    async def never(page: ParsedPage, crawl: Handle) -> None:
        raise Retry("never complete")

    own = settings | {"politeness": {"delay": 0, "tries": 3, "backoff_base": 0.01}, "scope": {"max_depth": 0}}
    crawl = Crawl(["http://a.test/1", "http://a.test/5"], handlers=router, settings=own, max_pages=2)
    stats = crawl.run()
    assert min(later - earlier for earlier, later in pairwise(tried)) > 0.9
    assert list(crawl.items("pages")) == [{"try": 3}]
    assert (site.times("/1"), site.times("/5")) == (3, 3)
    assert (stats.done, stats.dead) == ({"ok": 1}, {"handler_retry": 1})
    lines = [line for line in crawl_lines(Path(own["replica"]["out"])) if line["url"].endswith("/5")]
    assert [(line["outcome"], line["handler_error"]) for line in lines] == [("dead", "never complete")]


def test_a_page_whose_handler_fails_finally_reaches_the_one_for_failures_once(
    settings: dict[str, Any], site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    router, failures = Router(), list[tuple[str, str]]()

    @router.handler(r"/1$")
    def wrong(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("lost", {})
        raise ValueError("no price")

    @router.handler(r"/2$")
    async def incomplete(page: ParsedPage, crawl: Handle) -> None:
        raise Retry("no stock")

    @router.handler(r"/3$")
    async def wrong_twice(page: ParsedPage, crawl: Handle) -> None:
        raise ValueError("no name")

    @router.handler(r"/none", status=404)
    def missing(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("missing", {"url": page.url})

    @router.on_failure()
    def failed(page: ParsedPage, crawl: Handle) -> None:
        failures.append((page.url[-2:], page.reason))
        crawl.push("failures", {"error": page.handler_error})
        if page.url.endswith(("/3", "/4x")):
            raise ValueError("again")
        if page.url.endswith("/5x"):
            raise Retry
        crawl.enqueue("/39")

    own = settings | {"politeness": {"delay": 0, "tries": 3, "backoff_base": 0.01}, "handlers": {"tries": 2}}
    seeds = [f"http://a.test/{name}" for name in ("1", "2", "3", "4x", "5x", "none")]
    crawl = Crawl(seeds, handlers=router, settings=own)
    stats = crawl.run()
    assert sorted(failures) == [
        ("/1", "handler_failed"),
        ("/2", "handler_retry"),
        ("/3", "handler_failed"),
        *[("4x", "http_404")] * 2,
        *[("5x", "http_404")] * 3,
    ]
    assert sorted(item["error"].partition(" (")[0] for item in crawl.items("failures")) == [
        "ValueError: no price",
        "no stock",
    ]
    assert [site.times(path) for path in ("/1", "/2", "/3", "/4x", "/none", "/39")] == [2, 3, 2, 2, 1, 1]
    assert stats.done == {"ok": 1, "http_404": 1}
    assert stats.dead == {"handler_failed": 3, "handler_retry": 2}
    assert stats.items == {"failures": 2, "missing": 1}
    errors = [error.partition(" (")[0] for error in logged(caplog, "error")]
    assert (errors.count("ValueError: again"), errors.count("Retry")) == (3, 1)


async def test_links_of_a_page_that_stays_incomplete_are_counted(settings: dict[str, Any]) -> None:
    router, dropped = Router(), list[Event]()

    @router.handler(r"/$")
    async def never(page: ParsedPage, crawl: Handle) -> None:
        raise Retry("never complete")

    class Watched(Crawl):
        def _adapted(self, deps: Dependencies) -> Dependencies:
            deps.events.subscribe(dropped.append, LinkDropped)
            return deps

    own = settings | {"politeness": {"delay": 0, "tries": 1}}
    async with Watched(["http://a.test/"], handlers=router, settings=own) as crawl:
        (page,) = [page async for page in crawl]
    assert page.reason == "handler_retry"
    assert [one.reason for one in dropped if isinstance(one, LinkDropped)] == ["handler_retry"]


async def test_handlers_and_the_program_share_values(settings: dict[str, Any]) -> None:
    router, ended = Router(), list[int]()

    @router.on_start
    async def begin(crawl: Context) -> None:
        await crawl.store.set("weight", 2)

    @router.handler()
    async def count(page: ParsedPage, crawl: Handle) -> None:
        await crawl.store.increment("pages", await crawl.store.get("weight"))

    @router.on_end
    async def end(crawl: Context) -> None:
        ended.append(await crawl.store.get("pages"))

    crawl = Crawl(["http://a.test/"], handlers=router, settings=settings)
    with pytest.raises(RuntimeError, match="async with"):
        _ = crawl.store
    async with crawl:
        await crawl.store.set("pages", 1000)
        await crawl.finish()
    assert ended == [1000 + 2 * PAGES]


def test_a_handler_ends_the_crawl_and_another_run_goes_on(settings: dict[str, Any], site: Site) -> None:
    router = Router()

    @router.handler()
    def heading(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("headings", {"text": page.select_text("h1")})
        if page.url.endswith("/1"):
            crawl.stop("seen enough")

    own = settings | {"politeness": {"delay": 0.3}, "replica": settings["replica"] | {"interval": 0.5}}
    first = Crawl(["http://a.test/0"], handlers=router, settings=own)
    assert 1 < first.run().pages < PAGES
    second = Crawl(["http://a.test/0"], handlers=router, settings=own | {"politeness": {"delay": 0}})
    assert 1 < second.run().pages < PAGES
    assert first.stats.pages + second.stats.pages == PAGES == len(headings(second))


async def test_urls_from_outside_are_crawled_until_the_program_says_so(settings: dict[str, Any], site: Site) -> None:
    router = Router()

    @router.handler(label="added")
    async def added(page: ParsedPage, crawl: Handle) -> None:
        await crawl.push("added", page.payload)
        await crawl.drop()

    own = settings | {"replica": settings["replica"] | {"interval": 0.2}}
    crawl = Crawl(handlers=router, settings=own, keep_open=True)
    with pytest.raises(RuntimeError, match="does not run yet"):
        await crawl.add("http://a.test/38")
    async with asyncio.timeout(60), crawl:
        await asyncio.sleep(1)  # longer than it takes to see that nothing is left
        assert await crawl.add(["http://a.test/38", "http://a.test/39"], label="added", payload={"n": 1}) == 2
        assert await crawl.add("http://a.test/39") == 0
        with pytest.raises(UserError, match="no seed can be fetched"):
            await crawl.add("http://127.0.0.1:1/")
        with pytest.raises(ValueError, match="a priority is a number"):
            await crawl.add("http://a.test/37", float("nan"))
        assert (await anext(aiter(crawl))).label == "added"
        await crawl.finish()
    assert list(crawl.items("added")) == [{"n": 1}, {"n": 1}]
    with pytest.raises(RuntimeError, match="has ended"):
        await crawl.add("http://a.test/37")


async def test_urls_that_are_added_wait_while_redis_is_away(settings: dict[str, Any], tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=True) as valkey:
        own = settings | {"replica": settings["replica"] | {"redis": valkey.url, "interval": 0.5}}
        async with asyncio.timeout(PATIENCE_S), Crawl("http://a.test/38", settings=own, keep_open=True) as crawl:
            assert (await anext(aiter(crawl))).url == "http://a.test/38"
            valkey.kill()
            adding = asyncio.create_task(crawl.add("http://a.test/39"))
            await asyncio.sleep(0.5)
            assert not adding.done()
            await asyncio.to_thread(valkey.start)
            assert await adding == 1
            assert (await anext(aiter(crawl))).url == "http://a.test/39"


async def test_seeds_are_fetched_again_if_the_program_says_so(settings: dict[str, Any], site: Site) -> None:
    for again in (False, True, False):
        async with Crawl("http://a.test/38", settings=settings, again=again) as crawl:
            await crawl.finish()
    assert site.times("/38") == 2


def test_a_crawl_that_is_kept_open_ends_when_another_thread_says_so(settings: dict[str, Any], site: Site) -> None:
    crawl = Crawl("http://a.test/38", settings=settings, keep_open=True)

    def stop() -> None:
        wait_until(lambda: crawl.stats.pages == 1, "the page")
        with urllib.request.urlopen(crawl.address, timeout=PATIENCE_S) as live:
            assert live.status == 200
        crawl.stop()
        crawl.stop()

    with pytest.raises(RuntimeError, match="does not run yet"):
        crawl.stop()
    with ThreadPoolExecutor(1) as thread:
        stopping = thread.submit(stop)
        assert crawl.run().pages == 1
        stopping.result()
    assert crawl.stats.requests == len(site.answered)
    crawl.stop()


async def test_calls_from_another_event_loop_are_refused_with_what_to_write(settings: dict[str, Any]) -> None:
    crawl = Crawl(settings=settings, keep_open=True)
    async with asyncio.timeout(PATIENCE_S):
        running = asyncio.create_task(asyncio.to_thread(crawl.run))
        await asyncio.to_thread(wait_until, lambda: crawl.address, "the start")
        url = "http://a.test/38"
        for call in (
            lambda: crawl.add(url),
            lambda: crawl.fetch(url),
            lambda: crawl.download(url),
            lambda: crawl.store.set("a", 1),
            crawl.finish,
            lambda: anext(crawl),
        ):
            with pytest.raises(RuntimeError, match="run_coroutine_threadsafe"):
                await call()
        assert crawl.loop is not None
        adding = asyncio.run_coroutine_threadsafe(crawl.add(url), crawl.loop)
        assert await asyncio.wrap_future(adding) == 1
        await asyncio.to_thread(wait_until, lambda: crawl.stats.pages, "the page")
        crawl.stop()
        assert (await running).pages == 1


def test_progress_and_the_result_say_what_became_of_the_urls(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.app.program.PROGRESS_S", 0.1)
    crawl = Crawl(["http://a.test/38", "http://a.test/13", "http://a.test/x"], handlers=router, settings=settings)
    stats = crawl.run(progress=True)
    first, *lines = capsys.readouterr().err.splitlines()
    assert first == f"live page: {crawl.address}"
    assert len(lines) > 1
    assert lines[-1].startswith("2 pages, 1 item, 2 failures, ")
    assert stats.failures == {"http_404": 1, "handler_failed": 1}
    assert 0 < stats.seconds == stats.ended_at - stats.started_at
    assert Stats().seconds == 0


def test_items_are_exported_to_files(
    settings: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crawl = Crawl("http://a.test/38", handlers=router, settings=settings)
    crawl.run()
    for name in ("a.jsonl", "b.csv", "c.parquet"):
        assert crawl.export("headings", tmp_path / "deep" / name) == 1
    assert "page 38" in (tmp_path / "deep" / "b.csv").read_text()
    with pytest.raises(UserError, match=r"ends in \.jsonl, \.csv or \.parquet"):
        crawl.export("headings", "headings.xlsx")
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(UserError, match="no export has made it"):
        crawl.export("headings", tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "mine"
    for name in ("d.jsonl", "e.csv", "f.parquet"):
        with pytest.raises(UserError, match=r"no item of a data set 'heading' .*; data sets there: headings"):
            crawl.export("heading", tmp_path / "none" / name)
        assert not (tmp_path / "none" / name).exists()
        assert crawl.export("headings", tmp_path / "none" / name) == 1
    assert "PYTHONSAFEPATH" not in os.environ  # of the program, whose own children need no safe path


def logged(caplog: pytest.LogCaptureFixture, field: str) -> list[str]:
    """`field` of all log lines that have it. On a busy machine there are others, such as that the event loop is late."""
    return [record.fields[field] for record in caplog.records if field in getattr(record, "fields", {})]


def crawl_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.pages.jsonl") for line in path.read_text().splitlines()]


async def test_the_blocking_form_in_an_event_loop_names_the_other(settings: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="async with"):
        Crawl(["http://a.test/"], settings=settings).run()


class UvLoop(asyncio.SelectorEventLoop):
    """One that says it is uvloop's."""


UvLoop.__module__ = "uvloop"


def test_uvloop_is_refused_in_a_sentence_but_its_threads_can_crawl(site: Site, settings: dict[str, Any]) -> None:
    async def main() -> None:
        crawl = Crawl(["http://a.test/1"], settings=settings, max_pages=1)
        with pytest.raises(UserError, match=r"asyncio.to_thread\(crawl.run\)"):
            async with crawl:
                pass
        await asyncio.to_thread(Crawl(["http://a.test/1"], settings=settings, max_pages=1).run)

    with asyncio.Runner(loop_factory=UvLoop) as runner:
        runner.run(main())
    assert "/1" in site.asked


def test_a_crawl_keeps_the_settings_that_a_later_run_does_not_give(on_loopback: tuple[str, dict[str, Any]]) -> None:
    """Its seeds are judged and read by the settings of the crawl, too."""
    seed, settings = on_loopback
    first = settings | {"politeness": {"delay": 0, "backoff_base": 7}, "scope": {"strip_params": ["x"]}}
    Crawl([f"{seed}?x=1"], handlers=router, max_pages=3, settings=first).run()
    before = asyncio.run(stored(settings)).flat()
    local = {"replica": settings["replica"]}
    same = Crawl([f"{seed}?x=2"], handlers=router, settings=local)
    same.run()
    assert len(headings(same)) == 3, "the limit stays, too"
    more = Crawl([f"{seed}?x=2"], handlers=router, max_pages=7, settings=local)
    more.run()
    assert len(headings(more)) == 7
    assert asyncio.run(stored(settings)).flat() == before | {"limits.max_pages": 7}
    Crawl(handlers=router, settings=local | {"scope": {"max_depth": 50}, "politeness": {"delay": 0.01}}).run()
    after = asyncio.run(stored(settings)).flat()
    assert after == before | {"limits.max_pages": 7, "scope.max_depth": 50, "politeness.delay": 0.01}
    Crawl(handlers=router, max_pages=0, settings=local).run()
    assert len(headings(more)) > 7


def test_settings_of_handlers_are_kept(on_loopback: tuple[str, dict[str, Any]]) -> None:
    seed, settings = on_loopback
    found = []
    with_settings = Router(settings=Shop)

    @with_settings.handler()
    def shop(page: ParsedPage, crawl: Handle) -> None:
        found.append(crawl.settings.shop)

    with pytest.raises(UserError, match="shop"):
        Crawl([seed], handlers=with_settings, settings=settings).run()
    Crawl([seed], handlers=with_settings, max_pages=1, settings=settings | {"app": {"shop": 7}}).run()
    Crawl([seed], handlers=with_settings, max_pages=2, settings={"replica": settings["replica"]}).run()
    assert found == [7, 7]


def test_what_is_missing_in_a_later_run_is_logged(
    on_loopback: tuple[str, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    seed, settings = on_loopback
    caplog.set_level(logging.WARNING)
    Crawl([seed], max_pages=1, settings=settings | {"requests": [{"headers": ["X-Team: a"]}]}).run()
    assert caplog.messages == []
    caplog.clear()
    Crawl([seed], settings={"replica": settings["replica"]}).run()
    assert caplog.messages == ["without_local_settings", "page_limit_reached"]


def test_a_settings_file_is_the_whole(on_loopback: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    seed, settings = on_loopback
    crawl = Crawl([seed], max_pages=3, settings=settings | {"politeness": {"delay": 0, "backoff_base": 7}})
    crawl.run()
    replica = "".join(f"{name} = {value!r}\n" for name, value in settings["replica"].items())
    (tmp_path / "own.toml").write_text(f"[replica]\n{replica}[politeness]\ndelay = 1\n")
    Crawl(max_pages=3, settings=tmp_path / "own.toml").run()
    found = asyncio.run(stored(settings))
    assert (found.politeness, found.fetch) == (
        CrawlSettings.of({"politeness": {"delay": 1}}).politeness,
        CrawlSettings().fetch,
    )


def test_a_seed_that_is_refused_is_logged_once(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    Crawl(["http://a.test/38", "http://10.0.0.1/"], settings=settings).run()
    assert [record.getMessage() for record in caplog.records].count("seed_refused") == 1


def test_what_cannot_be_used_is_said_before_anything_starts(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nonsense"):
        Crawl(settings={"fetch": {"nonsense": 1}})
    with pytest.raises(UserError, match=r"^2 settings(.|\n)*fetch\.port: .* did you mean fetch\.ports\?"):
        Crawl(settings={"fetch": {"nonsense": 1, "port": 8744}})
    with pytest.raises(UserError, match="handlers has to be a Router or None, not method"):
        Crawl(handlers=router.handler)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="settings has to be a dict, a Path, text or None, not list"):
        Crawl(settings=["crawl.toml"])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="seeds has to be text, a Request or a list of these, not bytes"):
        Crawl(b"http://a.test/")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="crawl name 'a b': use 1 to 64 letters"):
        Crawl(name="a b")
    with pytest.raises(UserError, match="limits"):
        Crawl(settings={"limits": []}, max_pages=4)
    for bad, match in (
        (Crawl(["ftp://a.test/"], settings=settings), "cannot be used"),
        (
            Crawl(["http://127.0.0.1/"], settings=settings | {"fetch": {}}),
            r"settings=.'fetch': .'allow': .'127\.0\.0\.1'.*",
        ),
        (Crawl(settings=settings), "no seed"),
        (
            Crawl(["http://a.test/"], handlers=router, settings=settings | {"archive": {"pages": False}}),
            "archive.pages",
        ),
    ):
        with pytest.raises(UserError, match=match):
            bad.run()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"settings": {"fetch": {"contact": 3}}}, "settings: fetch.contact = 3: "),
        ({"max_pages": -1}, "max_pages: limits.max_pages = -1: "),
        ({"settings": {"limits": {"max_pages": -1}}}, "settings: limits.max_pages = -1: "),
        ({"settings": {"replica": {"out": "a-file"}}}, "choose another folder with replica.out"),
        ({"settings": {"replica": {"data_dir": "a-file"}}}, "choose another with replica.data_dir"),
        ({"settings": {"replica": {"listen": "127.0.0.1:PORT"}}}, "choose another replica.listen"),
    ],
)
def test_errors_name_settings_and_arguments_instead_of_options(
    settings: dict[str, Any],
    arguments: dict[str, Any],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").touch()
    with Site(tree) as other, pytest.raises(UserError) as found:
        tables = arguments.get("settings", {})
        if "listen" in tables.get("replica", {}):
            tables = {"replica": {"listen": f"127.0.0.1:{other.port}"}}
        whole = {name: settings.get(name, {}) | tables.get(name, {}) for name in {*settings, *tables}}
        Crawl(["http://a.test/"], **arguments | {"settings": whole}).run()
    assert said in str(found.value)
    assert "--" not in str(found.value)


def test_ctrl_c_ends_the_program_cleanly_and_the_next_run_goes_on(settings: dict[str, Any], tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio, sys\n"
        "from crawler import Crawl, Router\n"
        "router = Router()\n"
        "@router.handler()\n"
        "def heading(page, crawl):\n"
        "    crawl.push('headings', {'text': page.select_text('h1')})\n"
        f"crawl = Crawl(['http://a.test/'], handlers=router, settings={settings | {'politeness': {'delay': 0.5}}!r})\n"
        "async def main():\n"
        "    async with crawl:\n"
        "        async for page in crawl:\n"
        "            print(page.url, flush=True)\n"
        "asyncio.run(main())\n"
    )
    with (tmp_path / "out.txt").open("w") as out, (tmp_path / "err.txt").open("w") as err:
        process = subprocess.Popen([sys.executable, program], cwd=ROOT, stdout=out, stderr=err)
    wait_until(lambda: len((tmp_path / "out.txt").read_text().splitlines()) > 2, "three pages")
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == -signal.SIGINT or process.returncode == 130
    assert "KeyboardInterrupt" in (tmp_path / "err.txt").read_text()
    assert not list((tmp_path / "out").glob("*.open"))
    crawl = Crawl(handlers=router, settings=settings)
    before = headings(crawl)
    assert 2 < len(before) < PAGES
    crawl.run()
    found = headings(crawl)
    assert len(found) == len(set(found))
    assert set(before) < set(found)


def test_a_run_after_one_whose_pages_have_all_failed_says_so(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        Crawl("http://a.test/13", handlers=router, settings=settings).run()
    (problem,) = [one for one in logged(caplog, "problem") if "an earlier run" in one]
    assert problem.endswith("1 URL failed: `crawler dead requeue --all` has them tried again")


def test_a_run_that_has_nothing_left_says_so(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("WARNING", "crawler"):
        Crawl("http://a.test/", settings=settings).run()
        assert "nothing_left" not in caplog.messages
        Crawl("http://a.test/", settings=settings).run()
        assert caplog.messages.count("nothing_left") == 1
        Crawl("http://a.test/", settings=settings, again=True).run()
    assert caplog.messages.count("nothing_left") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_the_program_stops_the_crawl_cleanly(
    settings: dict[str, Any], tmp_path: Path, number: int
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import signal\n"
        "from crawler import Crawl, Router\n"
        "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
        "router = Router()\n"
        "@router.handler()\n"
        "def tell(page, crawl):\n"
        "    print(page.url, flush=True)\n"
        f"Crawl('http://a.test/', handlers=router, settings={settings | {'politeness': {'delay': 0.5}}!r}).run()\n"
        "print('goes on')\n"
    )
    with (tmp_path / "out.txt").open("w") as out:
        process = subprocess.Popen([sys.executable, program], cwd=ROOT, stdout=out)
    wait_until(lambda: len((tmp_path / "out.txt").read_text().splitlines()) > 2, "three pages")
    process.send_signal(number)
    assert process.wait(PATIENCE_S) == -number
    assert "goes on" not in (tmp_path / "out.txt").read_text()
    assert not list((tmp_path / "out").glob("*.open"))
    assert not list(tmp_path.rglob("valkey.sock"))


def test_the_example_of_the_guide_runs(settings: dict[str, Any], tmp_path: Path) -> None:
    """With another site. It has at most ten lines."""
    guide = (ROOT / "docs" / "how-to" / "extract-data.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    example = next(one for one in examples if "https://example.com" in one)
    assert len([line for line in example.splitlines() if line]) <= 10
    example = example.replace('"https://example.com"', '"http://a.test/"')
    (port,) = [entry.rpartition(":")[2] for entry in settings["fetch"]["host_map"]]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "CRAWLER_FETCH__HOST_MAP": f"a.test=127.0.0.1:{port}"}
    environment |= {"CRAWLER_POLITENESS__DELAY": "0", "CRAWLER_SCOPE__GUESS_SITEMAPS": "false"}
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert len(done.stdout.splitlines()) == 10, done.stderr
    assert "{'url': 'http://a.test/', 'text': 'page 0'}" in done.stdout.splitlines()
    assert done.stderr == ""


async def test_as_many_pages_of_a_domain_as_may_wait_for_handlers_at_the_same_time(settings: dict[str, Any]) -> None:
    router, running, most = Router(), 0, 0
    all_run = asyncio.Event()

    @router.handler(r"test/$")
    async def root(page: ParsedPage, crawl: Handle) -> None:
        await crawl.enqueue([f"/{number}" for number in range(1, PAGES)])

    @router.handler()
    async def slow(page: ParsedPage, crawl: Handle) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running > HANDED_ON:
            asyncio.get_running_loop().call_later(0.3, all_run.set)  # time for one more than may be
        await all_run.wait()
        running -= 1
        await crawl.push("pages", {"url": page.url})

    async with asyncio.timeout(60), Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert most == HANDED_ON + 1  # the last one holds up the next request
    assert sorted(item["url"] for item in crawl.items("pages")) == sorted(f"http://a.test/{n}" for n in range(1, PAGES))


async def test_the_delay_still_separates_requests(site: Site, settings: dict[str, Any]) -> None:
    router = Router()

    @router.handler()
    async def slow(page: ParsedPage, crawl: Handle) -> None:
        await asyncio.sleep(0.5)

    with_delay = settings | {"politeness": {"delay": 0.1, "response_share": 0}, "limits": {"max_pages": 6}}
    seeds = [f"http://a.test/{number}" for number in range(20, 26)]
    async with asyncio.timeout(60), Crawl(seeds, handlers=router, settings=with_delay) as crawl:
        await crawl.finish()
    asked = [request.at for request, _ in site.answered if request.path != "/robots.txt"]
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) == 5
    assert min(gaps) >= 0.1
    assert min(gaps) < 0.5
