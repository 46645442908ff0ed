"""Handlers that fail, block, or never return: each costs its own page, and no more time than it may take."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import re
import threading
import time
import weakref
from typing import Any

import brotli
import msgspec
import pytest

from crawler import Handle, ParsedPage, Retry, Router
from crawler.errors import Refused, UserError
from crawler.handlers.middlewares import give_up, until_given_up
from crawler.handlers.requests import KnownAnswers
from crawler.handlers.router import Context
from crawler.handlers.runner import HandlerRunner
from crawler.hooks import HttpRequest
from crawler.page import Exchange, Extra, Page
from crawler.parse.child import DocumentOffloader
from crawler.settings.tables import HandlersTable
from tests.sinks.values import exchange, page

GROUP = BaseExceptionGroup("both", [KeyboardInterrupt(), ValueError("bad")])
QUICK = HandlersTable(concurrency=2, timeout=0.05)
PATIENT = HandlersTable(concurrency=2, timeout=60.0)


def a_page(name: str) -> Page:
    return page(exchange(name, b"<h1>x"), content_type="text/html")


class Blocking:
    """A plain handler on `router` that returns only after `release`. `started`: how often it was called."""

    def __init__(self, router: Router, pattern: str = "") -> None:
        self.release = threading.Event()
        self.started = 0
        router.handler(pattern)(self._block)

    def _block(self, page: ParsedPage, crawl: Handle) -> None:
        self.started += 1
        self.release.wait()
        crawl.push("late", {})


async def test_a_handler_that_catches_its_end_ends_all_the_same() -> None:
    router = Router()

    @router.handler("/never")
    async def never(page: ParsedPage, crawl: Handle) -> None:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0.01)

    @router.handler()
    async def good(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("items", {"url": page.url})

    runner = HandlerRunner(router, QUICK)
    async with asyncio.timeout(60):
        lost = await asyncio.gather(*(runner.handle(a_page(f"/never{number}")) for number in range(5)))
        assert [handled.reason for handled in lost] == ["handler_timeout"] * 5
        assert (await runner.handle(a_page("/good"))).items
        if others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)


@pytest.mark.parametrize("raised", [ValueError("bad"), SystemExit(3), StopIteration(), GROUP, asyncio.CancelledError()])
async def test_whatever_a_handler_raises_is_a_reason(raised: BaseException) -> None:
    router = Router()

    @router.handler("plain")
    def plain(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("lost", {})
        raise raised

    @router.handler("async")
    async def later(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("lost", {})
        raise raised

    runner = HandlerRunner(router, PATIENT)
    for name in ("plain", "async", "plain"):
        handled = await runner.handle(a_page(name))
        assert handled.reason == "handler_failed"
        assert type(raised).__name__ in handled.error
        assert handled.items == ()


async def test_a_plain_function_that_returns_something_to_await_has_failed() -> None:
    """Nobody would await it, and its items would be missing without a word."""

    async def inner() -> None: ...

    router = Router()
    router.handler()(lambda page, crawl: inner())
    handled = await HandlerRunner(router, PATIENT).handle(a_page("x"))
    assert (handled.reason, "async def" in handled.error) == ("handler_failed", True)


async def test_what_takes_too_long_has_failed_and_does_not_hold_up_others() -> None:
    router = Router()
    blocking = Blocking(router, "plain")

    @router.handler("async")
    async def never(page: ParsedPage, crawl: Handle) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(3600)  # refuses to end

    runner = HandlerRunner(router, QUICK)
    plain, later = await asyncio.gather(runner.handle(a_page("plain")), runner.handle(a_page("async")))
    assert plain.reason == later.reason == "handler_timeout"
    assert "0.05 s" in plain.error
    assert plain.items == ()
    blocking.release.set()


async def test_no_more_run_at_the_same_time_than_may() -> None:
    router, together, most = Router(), 0, 0

    @router.handler()
    async def counted(page: ParsedPage, crawl: Handle) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await asyncio.sleep(0)
        together -= 1
        crawl.push("counted", {"url": page.url})

    runner = HandlerRunner(router, PATIENT)
    handled = await asyncio.gather(*(runner.handle(a_page(str(number))) for number in range(20)))
    assert most == 2
    assert [one.items[0].fields["url"][-2:].strip("/") for one in handled] == [str(number) for number in range(20)]


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


async def test_an_error_that_has_no_words_is_a_reason() -> None:
    router = Router()

    @router.handler()
    async def mute(page: ParsedPage, crawl: Handle) -> None:
        raise Mute

    handled = await HandlerRunner(router, PATIENT).handle(a_page("x"))
    line = mute.__code__.co_firstlineno + 2
    assert (handled.reason, handled.error) == ("handler_failed", f"Mute (test_runner.py:{line})")


@pytest.mark.parametrize("call", [lambda page: page.css("h1"), lambda page: page.select("h1::text")])
async def test_what_users_of_scrapy_write_is_answered_with_what_to_write(call: Any) -> None:
    router = Router()

    @router.handler()
    def heading(page: ParsedPage, crawl: Handle) -> None:
        call(page)

    handled = await HandlerRunner(router, PATIENT).handle(a_page("https://a.test/"))
    assert "page.select_text(CSS)" in handled.error


async def test_an_error_names_the_line_of_the_handler_and_not_that_of_a_library() -> None:
    router = Router()

    @router.handler()
    def broken(page: ParsedPage, crawl: Handle) -> None:
        json.loads("{")

    handled = await HandlerRunner(router, PATIENT).handle(a_page("x"))
    assert handled.error.endswith(f" (test_runner.py:{broken.__code__.co_firstlineno + 2})")


@pytest.mark.parametrize("is_async", [False, True])
async def test_what_a_handler_returns_is_not_lost_in_silence(is_async: bool) -> None:
    router = Router()

    async def later(page: ParsedPage, crawl: Handle) -> Any:
        return {"name": "x"}

    router.handler()(later if is_async else lambda page, crawl: [{"name": "x"}])  # type: ignore[arg-type]
    handled = await HandlerRunner(router, PATIENT).handle(a_page("x"))
    assert (handled.reason, "crawl.push(NAME, ITEM)" in handled.error) == ("handler_failed", True)


def test_functions_that_cannot_handle_pages_are_refused() -> None:
    router = Router()

    def yields(page: ParsedPage, crawl: Handle) -> Any:
        yield {"name": "x"}

    for function, said in ((yields, "crawl.push"), (lambda page: None, "two arguments")):
        with pytest.raises(UserError, match=said):
            router.handler()(function)  # type: ignore[arg-type]
    for pattern, said in ((yields, "with parentheses"), ("(", r"@router.handler: not a regular expression: '\('")):
        with pytest.raises(UserError, match=said):
            router.handler(pattern)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="text/html"):
        router.handler(content_type="html")


async def test_a_call_that_was_given_up_is_freed_while_the_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What catches everything would never end without a loop, at the end of the program."""
    monkeypatch.setattr("crawler.handlers.middlewares.PATIENCE_S", 0.0)

    async def goes_on() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)

    handler = goes_on()
    freed = weakref.ref(handler)
    call = asyncio.ensure_future(until_given_up(handler))
    del handler
    await asyncio.sleep(0)
    give_up(call)
    async with asyncio.timeout(60):
        await asyncio.wait([call])
    assert freed() is None


@pytest.mark.parametrize(
    ("conditions", "said"),
    [
        ({"pattern": ["/a", "/b"]}, "pattern has to be text, not list"),
        ({"pattern": re.compile("/a")}, "pattern has to be text, not Pattern"),
        ({"content_type": ["text/html"]}, "text/html"),
        ({"content_type": 5}, "text/html"),
        ({"content_type": "text/"}, "text/html"),
        ({"content_type": "*/*"}, "text/html"),
        ({"content_type": "text/html; charset=utf-8"}, "text/html"),
        ({"label": 5}, "label has to be text, not int"),
        ({"label": "a product"}, "'a product' cannot be a label"),
        ({"status": 4.5}, "a range or a list"),
        ({"kind": None}, "status from 400"),
        ({"kind": range(400, 500)}, "status from 400"),
    ],
)
def test_conditions_that_no_page_can_meet_are_refused(conditions: dict[str, Any], said: str) -> None:
    router = Router()
    register: Any = router.on_failure if "kind" in conditions else router.handler
    with pytest.raises(UserError, match=said):
        register(**conditions)


async def test_a_thread_that_was_given_up_does_not_hold_up_others() -> None:
    router = Router()
    blocking = Blocking(router)

    runner = HandlerRunner(router, QUICK)
    for number in range(6):
        assert (await runner.handle(a_page(str(number)))).reason == "handler_timeout"
    assert blocking.started == 6
    blocking.release.set()


async def test_of_too_many_threads_each_keeps_its_slot_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.handlers.runner.MOST_THREADS", 0)
    router = Router()
    blocking = Blocking(router)

    runner = HandlerRunner(router, QUICK)
    await asyncio.gather(runner.handle(a_page("1")), runner.handle(a_page("2")))
    third = asyncio.ensure_future(runner.handle(a_page("3")))
    await asyncio.sleep(0.1)
    assert blocking.started == 2
    blocking.release.set()
    assert (await third).reason == ""
    assert blocking.started == 3


class Waiting:
    """A visit whose requests are answered after `release`."""

    def __init__(self) -> None:
        self.extras: list[Extra] = []
        self.release = asyncio.Event()
        self.asked = asyncio.Semaphore(0)

    async def send(self, request: HttpRequest) -> Exchange:
        self.asked.release()
        await self.release.wait()
        if request.url.endswith("/none"):
            raise Refused("robots")
        return exchange("http://a.test/answer", b"<h1>y")

    def ends_in(self, seconds: float) -> None: ...


async def test_handlers_that_wait_for_answers_hold_up_no_others() -> None:
    router, visit, seen = Router(), Waiting(), list[int]()
    running = 0

    @router.handler("/waits")
    async def waits(page: ParsedPage, crawl: Handle) -> None:
        nonlocal running
        asked = (crawl.fetch(f"http://a.test/{name}") for name in ("one", "two", "none"))
        await asyncio.gather(*asked, return_exceptions=True)
        running += 1
        seen.append(running)
        await asyncio.sleep(0.01)
        running -= 1

    @router.handler("/good")
    def good(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("items", {})

    runner = HandlerRunner(router, PATIENT)
    pages = [msgspec.structs.replace(a_page(f"/waits{number}"), domain=f"h{number}.test") for number in range(9)]
    async with asyncio.timeout(60):
        for _ in range(2):
            visit.release.clear()
            waiting = asyncio.gather(*(runner.handle(page, visit) for page in pages))
            for _ in range(27):
                await visit.asked.acquire()
            assert (await runner.handle(a_page("/good"))).items
            visit.release.set()
            assert {handled.reason for handled in await waiting} == {""}
    assert len(seen) == 18
    assert max(seen) <= PATIENT.concurrency


async def test_what_is_cancelled_while_it_waits_for_an_answer_leaves_its_slot_free() -> None:
    router, visit = Router(), Waiting()

    @router.handler("/waits")
    async def waits(page: ParsedPage, crawl: Handle) -> None:
        await crawl.fetch("http://a.test/one")

    @router.handler("/good")
    def good(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("items", {})

    runner = HandlerRunner(router, QUICK)
    async with asyncio.timeout(60):
        lost = await asyncio.gather(*(runner.handle(a_page("/waits"), visit) for _ in range(6)))
        assert {handled.reason for handled in lost} == {"handler_timeout"}
        assert (await runner.handle(a_page("/good"))).items


async def test_a_handler_that_gives_up_a_request_has_a_slot_again() -> None:
    router, visit = Router(), Waiting()
    together, most = 0, 0

    @router.handler()
    async def impatient(page: ParsedPage, crawl: Handle) -> None:
        nonlocal together, most
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.01):
                await crawl.fetch("http://a.test/one")
        together += 1
        most = max(most, together)
        await asyncio.sleep(0.01)
        together -= 1

    runner = HandlerRunner(router, PATIENT)
    async with asyncio.timeout(60):
        handled = await asyncio.gather(*(runner.handle(a_page(str(number)), visit) for number in range(9)))
    assert {one.reason for one in handled} == {""}
    assert most <= PATIENT.concurrency


async def test_a_single_handler_runs_alone() -> None:
    router, visit, started = Router(), Waiting(), 0

    @router.handler()
    async def waits(page: ParsedPage, crawl: Handle) -> None:
        nonlocal started
        started += 1
        await crawl.fetch("http://a.test/one")

    runner = HandlerRunner(router, HandlersTable(concurrency=1, timeout=60.0))
    both = asyncio.gather(*(runner.handle(a_page("x"), visit) for _ in range(2)))
    await visit.asked.acquire()
    await asyncio.sleep(0.1)
    assert started == 1
    visit.release.set()
    await both


async def test_a_costly_answer_is_read_and_parsed_beside_the_event_loop() -> None:
    """73 bytes of brotli are 15 MB of frames, which took 2.4 s; and the tree of what is fetched took more."""
    body = brotli.compress(b"<h1>x</h1><frameset>" + b"<frame src=a>" * 1_200_000, quality=9)
    answer = msgspec.structs.replace(
        exchange("http://a.test/answer", body),
        headers=((b"content-type", b"text/html; charset=utf-8"), (b"content-encoding", b"br")),
    )
    router, offloader = Router(), DocumentOffloader()
    visit = KnownAnswers([("http://a.test/answer", answer)])

    @router.handler()
    async def fetches(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("items", {"text": (await crawl.fetch("http://a.test/answer")).select_text("h1")})

    context = Context()
    context.files.read = offloader.contents
    runner = HandlerRunner(router, PATIENT, context)
    began = time.thread_time()
    try:
        (item,) = (await runner.handle(a_page("x"), visit)).items
    finally:
        await offloader.stop()
    assert json.loads(item.json) == {"text": "x"}
    assert time.thread_time() - began < 1.0


async def test_an_item_is_in_one_line_whatever_it_is_made_of() -> None:
    router = Router()

    @router.handler()
    def raw(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("d", {"r": msgspec.Raw(b'{\n "a": 1\n}')})

    (item,) = (await HandlerRunner(router, PATIENT).handle(a_page("x"))).items
    assert item.json == b'{"r":{"a":1}}'


async def test_a_large_page_is_parsed_beside_the_event_loop_and_up_to_a_limit() -> None:
    """Also one that was given up, whose decoded size is unknown: 51 bytes of brotli are 32 MB of `<`."""
    router, lateness, found = Router(), 0.0, list[str | None]()

    @router.handler()
    async def heading(page: ParsedPage, crawl: Handle) -> None:
        found.append(page.select_text("h1"))

    async def watch() -> None:
        nonlocal lateness
        while True:
            before = time.thread_time()
            await asyncio.sleep(0)
            lateness = max(lateness, time.thread_time() - before)

    bomb = exchange("bomb", brotli.compress(b"<h1>x</h1>" + b"<" * 33_000_000), headers=((b"Content-Encoding", b"br"),))
    long = exchange("long", b"<h1>x</h1>" + b"<b>" * 300_000)
    watching = asyncio.create_task(watch())
    runner = HandlerRunner(router, PATIENT)
    for one, cut in ((bomb, ("unread",)), (long, ())):
        size = len(one.body)
        handled = await runner.handle(page(one, content_type="text/html", decoded_size=size, cut=cut))
        assert handled.reason == ""
    watching.cancel()
    assert found == ["x", "x"]
    assert lateness < 0.1


class Large:
    """What a handler has taken."""


@pytest.mark.parametrize("error", [ValueError("bad"), Retry("later")])
async def test_what_a_failed_handler_has_taken_does_not_wait_for_a_collection(error: Exception) -> None:
    router, taken = Router(), list[weakref.ref[Large]]()

    @router.handler()
    async def fail(page: ParsedPage, crawl: Handle) -> None:
        large = Large()
        taken.append(weakref.ref(large))
        raise type(error)(*error.args)

    gc.disable()
    try:
        assert (await HandlerRunner(router, PATIENT).handle(a_page("1"))).reason
        await asyncio.sleep(0)
        assert taken[0]() is None
    finally:
        gc.enable()
