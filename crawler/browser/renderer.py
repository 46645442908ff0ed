"""The browsers of a replica: each slot has one, which renders one page at a time, so a request belongs to its page without
guessing, and a page can be killed alone. A browser is started when a page needs it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from crawler.browser.page import ATTACH, Answer, OpenPage, RenderLimits
from crawler.browser.pipe import Params, PipeError
from crawler.browser.process import START_S, Chromium, find_browser, find_isolation, sweep_folders
from crawler.errors import BrowserFailed, Refused
from crawler.hooks import HttpRequest
from crawler.logs import log
from crawler.page import Exchange, Rendered
from crawler.scope.page_steps import Step

MAX_STARTS = 3
"""Browsers that do not start in a row, after which none is tried for a while."""

MAX_KILLED = 5
"""Pages in a row that ended their browser, after which the next browser has to render a plain page first. One site can
bring any number of such pages, and those of others are still rendered."""

_PLAIN = Exchange("http://plain.invalid/", 200, "", ((b"Content-Type", b"text/html"),), b"", b"", b"<p>x", "", 0, 0, 0)

FIRST_BREAK_S, LONGEST_BREAK_S = 60.0, 900.0


class Renderer:
    """Renders pages in up to `slots` browsers at once; further pages wait. `program` and `isolation`: as `browser` and
    `browser_isolation` in `[replica]`.
    `starts` and `kills`: browsers started, and those that ended before their time; `version`: of the last one."""

    def __init__(
        self,
        limits: RenderLimits,
        user_agent: str,
        *,
        slots: int = 1,
        program: str = "",
        isolation: str = "auto",
        now: Callable[[], float] | None = None,
    ) -> None:
        self.limits = limits
        self._user_agent = user_agent
        self._program = program
        self._isolation = isolation
        self._idle = [_Slot() for _ in range(slots)]
        self._slots = tuple(self._idle)
        self._free = asyncio.Semaphore(slots)
        self._now = now
        self._failed_starts = 0
        self._killed_in_a_row = 0
        self._break_s, self._closed_until, self._why = 0.0, 0.0, ""
        self.starts = self.kills = 0
        self.version = ""

    def __repr__(self) -> str:
        return f"<Renderer slots={len(self._slots)} starts={self.starts} kills={self.kills}>"

    @property
    def out_of_order(self) -> str:
        """Why no page is rendered at present; empty if pages are."""
        return self._why if self._closed_until > self._time() else ""

    async def render(
        self, exchange: Exchange, answer: Answer, *, takes_screenshot: bool = False, steps: tuple[Step, ...] = ()
    ) -> Rendered:
        """Render the page that the server has sent as `exchange`, with what `answer` gives it, and take `steps` before its
        DOM is taken. Raises BrowserFailed. The time of a page begins when a slot is free."""
        async with self._free:
            slot = self._idle.pop()  # the one that was used last is warm
            try:
                return await self._render(slot, exchange, answer, takes_screenshot, steps)
            finally:
                self._idle.append(slot)

    async def _render(
        self, slot: _Slot, exchange: Exchange, answer: Answer, takes_screenshot: bool, steps: tuple[Step, ...]
    ) -> Rendered:
        if why := self.out_of_order:
            raise BrowserFailed(why)
        chromium = slot.chromium or await self._start(slot)
        page = slot.page = OpenPage(chromium, self.limits, exchange, answer, takes_screenshot, steps)
        chromium.pages += 1
        try:
            rendered = await page.render()
            if page.is_reusable:
                self._break_s, self._killed_in_a_row = 0.0, 0
            elif rendered.outcome in ("done", "hung", "gone"):  # others are the page's own fault
                self._killed_in_a_row += 1
            return rendered
        finally:
            slot.page = None
            if not page.is_reusable or chromium.pages >= self.limits.pages:
                self.kills += not page.is_reusable
                await slot.end()

    async def _start(self, slot: _Slot) -> Chromium:
        try:
            sweep_folders()
            program, isolation = find_browser(self._program), await asyncio.to_thread(find_isolation, self._isolation)
            if isolation.kind == "flags" and not self.starts:
                log(logging.WARNING, "browser_without_namespace", why=isolation.why)
            chromium = slot.chromium = Chromium(program, isolation, self._user_agent, self.limits.memory)
            self.starts += 1
            await chromium.start(slot.on_event)
            call = chromium.pipe.call
            async with asyncio.timeout(START_S):
                await call("Target.setAutoAttach", ATTACH)
                await call("Fetch.enable", {"patterns": [{"urlPattern": "*"}]})
                await call("Browser.setDownloadBehavior", {"behavior": "deny", "eventsEnabled": True})
            if self._killed_in_a_row >= MAX_KILLED:
                plain = slot.page = OpenPage(chromium, RenderLimits(time_s=START_S), _PLAIN, _no_answer)
                outcome = (await plain.render()).outcome
                if not plain.is_reusable:
                    raise BrowserFailed(f"{program} renders no plain page: it ended with {outcome!r}")
                self._killed_in_a_row = 0
        except (BrowserFailed, PipeError, TimeoutError) as error:
            await slot.end()
            self._failed_starts += 1
            if self._failed_starts >= MAX_STARTS:
                self._open_breaker(str(error))
            raise error if isinstance(error, BrowserFailed) else BrowserFailed(str(error)) from error
        except BaseException:
            await slot.end()
            raise
        self._failed_starts, self.version = 0, chromium.version
        return chromium

    def _open_breaker(self, why: str) -> None:
        self._break_s = min(LONGEST_BREAK_S, max(FIRST_BREAK_S, 2 * self._break_s))
        self._closed_until, self._why = self._time() + self._break_s, why
        self._failed_starts = 0

    def _time(self) -> float:
        return (self._now or asyncio.get_running_loop().time)()

    async def stop(self) -> None:
        """End all browsers. Pages in progress are to be cancelled before."""
        for slot in self._slots:
            await slot.end()


async def _no_answer(_: HttpRequest) -> Exchange:
    raise Refused("offline")


class _Slot:
    """A browser, or room for one, and the page that it renders."""

    chromium: Chromium | None = None
    page: OpenPage | None = None

    def on_event(self, name: str, params: Params, session: str) -> None:
        if self.page is not None:
            self.page.on_event(name, params, session)
        elif self.chromium is not None and name == "Target.attachedToTarget":
            self.chromium.pipe.post("Runtime.runIfWaitingForDebugger", {}, params["sessionId"])
        elif self.chromium is not None and name == "Fetch.requestPaused":
            failed = {"requestId": params["requestId"], "errorReason": "BlockedByClient"}
            self.chromium.pipe.post("Fetch.failRequest", failed, session)

    async def end(self) -> None:
        chromium, self.chromium, self.page = self.chromium, None, None
        if chromium is not None:
            await chromium.kill()
