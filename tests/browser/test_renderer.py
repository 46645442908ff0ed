"""A browser renders what pages are meant to show, reaches no network, and whatever a page does, ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.browser import GRACE_S, Renderer, RenderLimits
from crawler.browser.process import FOLDER, find_browser, find_isolation, processes_below, sweep_folders
from crawler.errors import BrowserFailed, Refused, UserError
from crawler.fetch.address_policy import HostMap
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.hooks import HttpRequest
from crawler.page import Exchange, Rendered
from crawler.scope.page_steps import parse_step
from frontier.clock import SystemClock
from tests.browser.pages import USER_AGENT, Web

try:
    find_browser()
except BrowserFailed:
    pytest.skip("needs Debian's chromium-headless-shell", allow_module_level=True)

LIMITS = RenderLimits(time_s=8.0, settle_s=0.3)


class Visitor:
    """Fetches pages and has them rendered, with the crawler's own client for all requests."""

    def __init__(self, web: Web, fetcher: Fetcher, renderer: Renderer) -> None:
        self.web, self.fetcher, self.renderer = web, fetcher, renderer
        self.requests: list[HttpRequest] = []

    async def answer(self, request: HttpRequest) -> Exchange:
        self.requests.append(request)
        return await self.fetcher.fetch(
            request.url, extra_headers=request.fields, method=request.method, body=request.body
        )

    async def is_hanging(self) -> None:
        """Wait until the page waits for what never comes."""
        async with asyncio.timeout(30.0):
            while "/slow" not in {asked.path for asked in self.web.asked}:  # noqa: ASYNC110 - the page is another process
                await asyncio.sleep(0.05)

    async def visit(self, path: str, **options: Any) -> Rendered:
        exchange = await self.fetcher.fetch("http://site.test" + path)
        return await self.renderer.render(exchange, self.answer, **options)


@contextlib.asynccontextmanager
async def visitor(limits: RenderLimits = LIMITS, **options: Any) -> AsyncIterator[Visitor]:
    async with Web().served() as web:
        hosts = HostMap.parse([f"{name}.test=127.0.0.1:{web.port}" for name in ("site", "other")])
        fetcher = Fetcher(FetchSettings(USER_AGENT, host_map=hosts, total_timeout_s=10.0, parallel=8), SystemClock())
        renderer = Renderer(limits, USER_AGENT, **options)
        await fetcher.start()
        try:
            yield Visitor(web, fetcher, renderer)
        finally:
            await renderer.stop()
            await fetcher.stop(0)


def html(rendered: Rendered) -> str:
    return rendered.dom.body.decode() if rendered.dom else ""


def running(renderer: Renderer) -> list[int]:
    """The processes of its browser."""
    (slot,) = renderer._slots
    return [] if slot.chromium is None else processes_below(slot.chromium._pid)


def alive(pids: list[int]) -> list[str]:
    return [name for pid in pids if (name := command(pid))]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder for temporary files that the user of a browser may use, too."""
    with tempfile.TemporaryDirectory(prefix="tmp-") as folder:
        Path(folder).chmod(0o755)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


def folders() -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"{FOLDER}*"))


async def test_an_application_shows_its_data_and_its_whole_list() -> None:
    async with visitor() as v:
        app = await v.visit("/app")
        assert app.outcome == "done"
        assert "Shop of things" in html(app)
        assert html(app).count('href="/item/') == 60  # those that appear on scrolling, too
        types = {request.kind for request in v.requests}
        assert {"stylesheet", "script"} <= types <= {"stylesheet", "script", "fetch", "xhr"}
        assert app.refused == {"type image": 1}  # the background
        wanted = next(request for request in v.requests if request.url.endswith("/hello"))
        assert ("X-Wanted", "1") in wanted.fields
        assert not {name.lower() for name, _ in wanted.fields} & {"user-agent", "accept-language", "sec-ch-ua"}
        assert {asked.user_agent for asked in v.web.asked} == {USER_AGENT}
        assert "OPTIONS" not in {asked.method for asked in v.web.asked}


async def test_frames_workers_cookies_and_shadow_roots_work_as_in_any_browser() -> None:
    async with visitor() as v:
        await v.visit("/frames")
        assert {"http://other.test/inner", "http://other.test/api/inner", "http://site.test/app2.js"} <= {
            request.url for request in v.requests
        }
        workers = html(await v.visit("/workers"))
        for message in ("worker:worker", "worker:imported", "shared:shared", "blob:blob"):
            assert message in workers
        assert "server: js=1; hidden=2 page: js=1<" in html(await v.visit("/cookies"))
        assert "server: js=1; hidden=2" in html(await v.visit("/cookies"))  # not those of the visit before
        assert '<template shadowrootmode="open"' in html(await v.visit("/shadow"))
        assert ">refused TypeError<" in html(await v.visit("/cors"))
        tampered = html(await v.visit("/tamper"))
        assert "real text" in tampered and not tampered.startswith("FOOLED")
        assert ">half ? pair<" in html(await v.visit("/surrogate"))
        named = await v.visit("/names")
        assert "real text" in html(named) and named.url == "http://site.test/names"
        assert (await v.visit("/no-root")).dom is None
        assert v.renderer.kills == 0
        assert f">{USER_AGENT}|true|en-US|UTC<" in html(await v.visit("/environment"))
        assert html(await v.visit("/quirks")).startswith("<html>")


async def test_steps_are_taken_before_the_dom_is() -> None:
    steps = "repeat 9 click .more", "remove #banner", "wait .price 5s", "click #none", "wait #none 0.2s"
    async with visitor() as v:
        page = await v.visit("/banner", steps=tuple(map(parse_step, steps)))
        shown = html(page).partition("<script>")[0]
        assert shown.count("<li>") == 3 and "Cookies?" not in shown and 'class="price"' in shown
        assert (page.outcome, page.failed_steps) == ("done", ("click #none", "wait #none 0.2s"))
        broken = await v.visit("/banner", steps=(parse_step("click ]["),))
        assert (broken.outcome, broken.failed_steps) == ("done", ("click ][",))


@pytest.mark.parametrize(
    "text", ["", "jump", "click", "grow x", "repeat 5 remove a", "repeat 99 click a", "wait a 60s"]
)
def test_other_words_are_no_steps(text: str) -> None:
    with pytest.raises(UserError):
        parse_step(text)


async def test_a_window_shows_a_page_as_a_screenshot() -> None:
    async with visitor() as v:
        shot = (await v.visit("/app", takes_screenshot=True)).screenshot
        assert shot.startswith(b"\x89PNG")
        assert shot[16:24] == (1280).to_bytes(4, "big") + (1024).to_bytes(4, "big")


@pytest.mark.parametrize(
    ("path", "links"),
    [
        ("/history", {"pushed", "replaced"}),
        ("/hash-routes", {"hash-routes#/b"}),  # the same URL
        ("/refresh", {"elsewhere"}),
        ("/navigate", {"elsewhere"}),
        ("/download", {"elsewhere", "file.bin"}),
    ],
)
async def test_where_a_page_leads_is_a_link(path: str, links: set[str]) -> None:
    async with visitor() as v:
        rendered = await v.visit(path)
        assert rendered.outcome == "done"
        assert set(rendered.links) == {f"http://site.test/{link}" for link in links}
        assert "/elsewhere" not in {asked.path for asked in v.web.asked}


@pytest.mark.parametrize("isolation", ["namespace", "flags"])
async def test_nothing_leaves_a_browser(isolation: str) -> None:
    if isolation == "namespace" and find_isolation().kind != isolation:
        pytest.skip("this machine allows no network namespace")
    async with visitor(isolation=isolation) as v:
        for path in ("/leaks", "/window", "/workers", "/frames", "/download"):
            rendered = await v.visit(path)
            assert rendered.outcome == "done"
            assert "OPEN" not in html(rendered).split("<script>")[0]
        await asyncio.sleep(1.0)  # what a browser does by itself
        assert v.web.leaks == []
        assert {asked.user_agent for asked in v.web.asked} == {USER_AGENT}
        assert {asked.method for asked in v.web.asked} == {"GET"}
        assert not {"/beacon", "/post", "/put", "/events", "/ws"} & {asked.path for asked in v.web.asked}


HOSTILE = (
    "/navigate-always",
    "/dialogs",
    "/loop",
    "/loop-at-once",
    "/loop-in-workers",
    "/gigabytes",
    "/heap",
    "/elements",
    "/huge",
    "/hanging-script",
    "/hanging-image",
    "/polls",
    "/flood",
    "/many-frames",
    "/frame-in-frame",
    "/windows",
    "/console",
    "/states",
)
WITH_TEXT = set(HOSTILE) - {"/loop-in-workers", "/elements", "/huge", "/many-frames", "/states", "/navigate-always"}


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.parametrize("path", HOSTILE)
async def test_a_hostile_page_ends_in_time_and_the_next_is_rendered(path: str) -> None:
    limits = msgspec.structs.replace(LIMITS, time_s=4.0)
    async with visitor(limits) as v:
        hostile = await v.visit(path)
        assert hostile.elapsed < limits.time_s + GRACE_S + 1
        assert hostile.outcome in ("done", "time") or path not in WITH_TEXT
        assert "text" in html(hostile) or "</p> after" in html(hostile) or path not in WITH_TEXT
        assert len(hostile.links) <= 1_000 and hostile.requests <= limits.requests
        after = await v.visit("/simple")
        assert (after.outcome, "Plain text." in html(after)) == ("done", True)
        pids = running(v.renderer)
        assert pids
    assert alive(pids) == []
    assert folders() == []


async def test_a_page_cannot_load_more_than_its_limits() -> None:
    async with visitor(msgspec.structs.replace(LIMITS, requests=3)) as v:
        app = await v.visit("/app")
        assert app.requests == 3
        assert app.refused["requests"] == 1
    async with visitor(msgspec.structs.replace(LIMITS, bytes=10)) as v:
        assert (await v.visit("/app")).refused["bytes"] == 2
    async with visitor() as v:

        async def refuse(_: HttpRequest) -> Exchange:
            raise Refused("robots")

        exchange = await v.fetcher.fetch("http://site.test/app")
        assert (await v.renderer.render(exchange, refuse)).refused == {"robots": 2}


def send(sign: signal.Signals, pids: list[int], part: str) -> None:
    """Send `sign` to those of `pids` that are a `part` of a browser."""
    for pid in pids:
        words = command(pid)
        type_ = words.partition("--type=")[2].partition(" ")[0] or "browser"
        if words.startswith(find_browser()) and type_ == part:
            os.kill(pid, sign)


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_browser_that_opens_no_more_pages_is_replaced(sign: signal.Signals) -> None:
    async with visitor() as v:
        await v.visit("/simple")
        send(sign, running(v.renderer), "zygote")
        assert (await v.visit("/simple")).outcome in ("crashed", "gone", "hung", "time")
        assert (await v.visit("/simple")).outcome == "done"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("part", ["browser", "renderer"])
async def test_a_killed_or_stopped_process_costs_one_page(sign: signal.Signals, part: str) -> None:
    limits = msgspec.structs.replace(LIMITS, time_s=6.0)
    async with visitor(limits) as v:
        rendering = asyncio.create_task(v.visit("/hanging-script"))
        await v.is_hanging()
        pids = running(v.renderer)
        send(sign, pids, part)
        rendered = await rendering
        assert rendered.outcome in ("crashed", "gone", "hung", "time")
        assert rendered.elapsed < limits.time_s + GRACE_S + 10
        assert (await v.visit("/simple")).outcome == "done"
    assert alive(pids) == []
    assert folders() == []


async def test_a_cancelled_page_leaves_nothing() -> None:
    async with visitor() as v:
        rendering = asyncio.create_task(v.visit("/hanging-script"))
        await v.is_hanging()
        pids = running(v.renderer)
        rendering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rendering
        assert alive(pids) == []
        assert folders() == []


async def test_a_browser_that_does_not_start_is_left_alone_for_a_while() -> None:
    now = 0.0
    async with visitor(program="/bin/false", now=lambda: now) as v:
        for _ in range(3):
            assert v.renderer.out_of_order == ""
            with pytest.raises(BrowserFailed):
                await v.visit("/simple")
        assert v.renderer.out_of_order
        with pytest.raises(BrowserFailed):
            await v.visit("/simple")
        assert v.renderer.starts == 3
        now = 61.0
        assert v.renderer.out_of_order == ""
    assert folders() == []


@pytest.mark.long
async def test_pages_that_end_their_browser_keep_no_others_from_it() -> None:
    async with visitor() as v:
        for _ in range(6):
            rendering = asyncio.create_task(v.visit("/hanging-script"))
            await v.is_hanging()
            v.web.asked.clear()
            send(signal.SIGKILL, running(v.renderer), "browser")
            assert (await rendering).outcome == "gone"
        assert (await v.visit("/simple")).outcome == "done"
    assert folders() == []


async def test_a_browser_is_replaced_after_some_pages() -> None:
    async with visitor(msgspec.structs.replace(LIMITS, pages=2)) as v:
        for _ in range(5):
            assert (await v.visit("/simple")).outcome == "done"
        assert (v.renderer.starts, v.renderer.kills) == (3, 0)


VICTIM = """
import asyncio, sys
from tests.browser.test_renderer import running, visitor
async def main():
    async with visitor(isolation=sys.argv[2]) as v:
        rendering = asyncio.create_task(v.visit(sys.argv[1]))
        while sys.argv[1] not in {asked.path for asked in v.web.asked} or len(running(v.renderer)) < 4:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        print(*running(v.renderer), flush=True)
        await rendering
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize("isolation", ["auto", "flags"])
@pytest.mark.parametrize("path", ["/loop-at-once", "/loop-in-workers", "/hanging-script"])
def test_a_killed_crawler_leaves_no_process_and_its_folder_is_swept(path: str, isolation: str) -> None:
    crawler = subprocess.Popen([sys.executable, "-c", VICTIM, path, isolation], stdout=subprocess.PIPE, text=True)
    assert crawler.stdout is not None
    with crawler.stdout:
        pids = [int(pid) for pid in crawler.stdout.readline().split()]
    assert len(pids) > 3
    assert sweep_folders() == 0  # it is in use
    crawler.kill()
    crawler.wait()
    for _ in range(400):
        if not alive(pids):
            break
        signal.sigtimedwait([], 0.05)
    assert alive(pids) == []
    assert sweep_folders() == 1
    assert folders() == []
