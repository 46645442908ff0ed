"""The life of one page in a browser: its requests are answered or refused, and at the end its DOM is taken. Its own way to
other pages ends here: navigations, windows and downloads are refused, and become links.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urldefrag

import msgspec

from crawler.browser.pipe import Params, PipeError
from crawler.browser.process import Chromium
from crawler.errors import FetchFailed, Refused
from crawler.hooks import HttpRequest
from crawler.page import Exchange, Rendered, RenderOutcome
from crawler.parse.coding import decode_body
from crawler.scope.page_steps import Step

GRACE_S = 5.0
"""How long a page may take, after its time, to give its DOM before its browser is killed."""

Answer = Callable[[HttpRequest], Awaitable[Exchange]]
"""Answers a request of a page, whose `kind` is one of `RenderLimits.load`. Raises Refused and FetchFailed."""

WIDTH, HEIGHT = 1280, 1024

MAX_DOM = 10 << 20
"""Characters of a DOM, and bytes of the page that a browser gets."""

MAX_LINKS = 1_000
MAX_LINK = 2_000

SCRIPT_S = 2.0
"""How long a page that does not answer is waited for. Then its scripts are stopped."""

_IDLE = "new Promise(done => requestIdleCallback(() => done(true), {timeout: 1000}))"

AGAIN_S, AGAIN_CAP_S = 0.15, 1.5
"""As `RenderLimits.settle_s` and `settle_cap_s`, after a step."""

WATCH_S = 0.5
TREE_MEMORY = 1.5
"""The memory of all processes of a browser, in limits of one."""

_OWN_FIELDS = frozenset(
    {"accept-encoding", "accept-language", "connection", "dnt", "host", "upgrade-insecure-requests", "user-agent"}
)
"""Fields of a request that speak of the browser. The crawler has its own."""

_NOT_PASSED = frozenset(
    {
        b"alt-svc",
        b"connection",
        b"content-encoding",
        b"content-length",
        b"keep-alive",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"strict-transport-security",
        b"transfer-encoding",
    }
)
"""Fields of a response that say how it was transferred, or have the browser make requests of its own."""

_OF_BODY = frozenset({b"content-encoding", b"content-length", b"content-type", b"transfer-encoding"})

# Only in a world of its own: the page may have redefined what these call.
_TALL = "(document.scrollingElement || document.documentElement).scrollHeight"
_ACT = """((selector, verb) => {
    const found = [...document.querySelectorAll(selector)];
    if (verb === 'remove') found.forEach(element => element.remove());
    if (verb !== 'click') return found.length > 0;
    const shown = found.find(element => element.getClientRects().length && !element.disabled);
    if (shown) shown.click();
    return !!shown;
})"""
_SNAPSHOT = """(most => {
    // Forms and images may have the names of properties of the document.
    const own = name => Object.getOwnPropertyDescriptor(Document.prototype, name).get.call(document);
    const [root, doctype, url] = ['documentElement', 'doctype', 'URL'].map(own), shadows = [];
    if (!root) return {html: '', url};
    (function walk(node) {
        for (const {shadowRoot} of node.querySelectorAll('*'))
            if (shadowRoot instanceof ShadowRoot) { shadows.push(shadowRoot); walk(shadowRoot); }
    })(root);
    const type = doctype ? new XMLSerializer().serializeToString(doctype) + '\\n' : '';
    const shell = root.cloneNode(false).outerHTML, end = shell.lastIndexOf('</');
    const inner = root.getHTML ? root.getHTML({serializableShadowRoots: true, shadowRoots: shadows}) : root.innerHTML;
    return {html: type + shell.slice(0, end) + inner.slice(0, most) + shell.slice(end), url};
})"""


class RenderLimits(msgspec.Struct, frozen=True):
    """What pages may do. `time_s`: for all of a page; `settle_s`: the time without a request after which a loaded page
    counts as complete, and `settle_cap_s` how long this is waited for. `grow`: the pixels to which the window may grow, so
    that lists load what they show on scrolling; 0 for none. `load`: the types of requests that are answered
    (`type_of`); `posts`: the URLs to which they may post. `memory`: bytes of data of each process.
    `pages`: after so many, a browser is replaced."""

    time_s: float = 20.0
    settle_s: float = 0.5
    settle_cap_s: float = 8.0
    grow: int = 20_000
    load: frozenset[str] = frozenset({"script", "stylesheet", "xhr", "frame"})
    posts: tuple[str, ...] = ()
    requests: int = 150
    bytes: int = 20 << 20
    memory: int = 1 << 30
    pages: int = 200


class OpenPage:
    """A page that is rendered in `chromium`, and has it for itself. `exchange`: the page as the server has sent it;
    `answer` answers its other requests. `is_reusable`: whether the browser can render another page afterwards."""

    def __init__(
        self,
        chromium: Chromium,
        limits: RenderLimits,
        exchange: Exchange,
        answer: Answer,
        takes_screenshot: bool = False,
        steps: tuple[Step, ...] = (),
    ) -> None:
        self._chromium = chromium
        self._pipe = chromium.pipe
        self._limits = limits
        self._exchange = exchange
        self._answer = answer
        self._takes_screenshot = takes_screenshot
        self._steps = steps
        self._failed_steps: list[str] = []
        self.is_reusable = False
        self._outcome: RenderOutcome = "done"
        self._html, self._url, self._screenshot = b"", exchange.url, b""
        self._links: dict[str, None] = {}
        self._refused = Counter[str]()
        self._context = self._target = self._session = ""
        self._windows: set[str] = set()
        self._has_document = False
        self._attached, self._loaded, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._requests = self._bytes = self._in_flight = 0
        self._quiet_since = 0.0
        self._answering: set[asyncio.Task[None]] = set()

    async def render(self) -> Rendered:
        """Return what becomes of the page, within the time limit and `GRACE_S`. Cancelled, it leaves the browser as it
        is."""
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        life = asyncio.create_task(self._live())
        over, watch = asyncio.create_task(self._over.wait()), asyncio.create_task(self._watch())
        try:
            await asyncio.wait([life, over], timeout=self._limits.time_s + GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                if life.exception() is not None:
                    self._ended("gone" if self._pipe.closed.is_set() else "hung")
            else:
                self._ended("hung")
        finally:
            tasks = (life, over, watch, *self._answering)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Rendered(
            self._outcome,
            loop.time() - self._began,
            self._with_dom(self._html) if self._html else None,
            self._url,
            tuple(self._links),
            self._requests,
            dict(self._refused),
            self._screenshot,
            tuple(self._failed_steps),
        )

    def _with_dom(self, html: bytes) -> Exchange:
        fields = [(name, value) for name, value in self._exchange.headers if name.lower() not in _OF_BODY]
        fields.append((b"Content-Type", b"text/html; charset=utf-8"))
        return msgspec.structs.replace(self._exchange, headers=tuple(fields), body=html, encoding="", truncated=None)

    def _ended(self, how: RenderOutcome) -> None:
        if self._outcome in ("done", "time") and not (self._html and how == "hung"):
            self._outcome = how
        self._over.set()

    async def _watch(self) -> None:
        most = int(self._limits.memory * TREE_MEMORY)
        while not self._pipe.closed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_S):
                    await self._pipe.closed.wait()
            if self._chromium.memory() > most:
                self._ended("memory")
                return
        self._ended("gone")

    # its life

    async def _live(self) -> None:
        call, ends_at = self._pipe.call, self._began + self._limits.time_s
        try:
            async with asyncio.timeout_at(ends_at):
                context = await call("Target.createBrowserContext", {"disposeOnDetach": True})
                self._context = context["browserContextId"]
                denied = {"behavior": "deny", "eventsEnabled": True, "browserContextId": self._context}
                await call("Browser.setDownloadBehavior", denied)
                size = {"width": WIDTH, "height": HEIGHT}
                await call("Target.createTarget", {"url": "about:blank", "browserContextId": self._context, **size})
                await self._attached.wait()
                await call("Page.enable", {}, self._session)  # without waiting, the load event may be missed
                self._quiet_since = asyncio.get_running_loop().time()
                self._pipe.post("Page.navigate", {"url": self._exchange.url}, self._session)
                await self._loaded.wait()
                await self._settled(self._limits.settle_s, self._limits.settle_cap_s)
                for step in self._steps:
                    await self._take(step)
                await self._grow()
        except TimeoutError:
            self._outcome = "time"
        if not self._session:
            raise PipeError("no page was opened")
        snapshot = await self._value(f"{_SNAPSHOT}({MAX_DOM})")
        if snapshot is not None:
            self._html, self._url = snapshot["html"].encode(errors="replace"), snapshot["url"]
        if self._takes_screenshot:
            await self._take_screenshot()
        await call("Target.disposeBrowserContext", {"browserContextId": self._context})
        self.is_reusable = snapshot is not None  # what kept this page from its DOM may keep all others

    async def _settled(self, quiet_s: float, most_s: float) -> None:
        """Wait until no request was made for `quiet_s` and the page has nothing to do, for `most_s` at most. On a busy
        machine, scripts may take longer than that to make the next request."""
        loop = asyncio.get_running_loop()
        until = loop.time() + most_s
        while (now := loop.time()) < until:
            left = self._quiet_since + quiet_s - now
            if not self._in_flight and left <= 0:
                since = self._quiet_since
                if self._outcome == "done":
                    await self._value(_IDLE)
                if not self._in_flight and self._quiet_since == since:
                    return
                continue
            await asyncio.sleep(0.05 if self._in_flight else max(0.02, left))

    async def _settled_again(self) -> None:
        self._quiet_since = asyncio.get_running_loop().time()
        await self._settled(AGAIN_S, AGAIN_CAP_S)

    async def _grow(self) -> None:
        """Make the window as tall as the page, again and again as long as that has it load more."""
        height = HEIGHT
        while height < self._limits.grow and self._outcome == "done":
            tall = await self._value(_TALL)
            if not isinstance(tall, int) or tall <= height:
                return
            height = min(tall, self._limits.grow)
            await self._pipe.call("Emulation.setDeviceMetricsOverride", _window(height), self._session)
            await self._settled_again()

    async def _take(self, step: Step) -> None:
        if self._outcome != "done":  # its scripts were stopped
            self._failed_steps.append(step.text)
            return
        if step.verb == "grow":
            await self._grow()
            return
        until = asyncio.get_running_loop().time() + (step.seconds if step.verb == "wait" else 0.0)
        for number in range(step.times):
            while not (found := await self._value(f"{_ACT}({json.dumps(step.selector)}, {json.dumps(step.verb)})")):
                if asyncio.get_running_loop().time() >= until:
                    break
                await asyncio.sleep(0.1)
            if not found:
                if not number:
                    self._failed_steps.append(step.text)
                return
            if step.verb == "click":
                await self._settled_again()

    async def _value(self, expression: str) -> Any:
        """The value of `expression`, in a world that the page cannot change. A page that is busy has its scripts stopped;
        None if that does not help. Raises PipeError."""
        for is_last in (False, True):
            try:
                async with asyncio.timeout(SCRIPT_S):
                    frame = {"frameId": self._target, "worldName": "crawler"}
                    world = await self._pipe.call("Page.createIsolatedWorld", frame, self._session)
                    wanted = {
                        "expression": expression,
                        "returnByValue": True,
                        "awaitPromise": True,
                        "timeout": SCRIPT_S * 1000,
                    }
                    wanted["contextId"] = world["executionContextId"]
                    found = await self._pipe.call("Runtime.evaluate", wanted, self._session)
                    return found["result"].get("value")
            except TimeoutError:
                if is_last:
                    break
                self._outcome = "time"
                self._pipe.post("Runtime.terminateExecution", {}, self._session)
                self._pipe.post("Emulation.setScriptExecutionDisabled", {"value": True}, self._session)
                self._pipe.post("Page.stopLoading", {}, self._session)
        return None

    async def _take_screenshot(self) -> None:
        with contextlib.suppress(TimeoutError, PipeError):
            async with asyncio.timeout(SCRIPT_S):
                await self._pipe.call("Emulation.setDeviceMetricsOverride", _window(HEIGHT), self._session)
                shot = await self._pipe.call("Page.captureScreenshot", {"format": "png"}, self._session)
                self._screenshot = base64.b64decode(shot["data"])

    # events

    def on_event(self, name: str, params: Params, session: str) -> None:
        """Take an event of the browser."""
        match name:
            case "Fetch.requestPaused":
                self._paused(params, session)
            case "Target.attachedToTarget":
                self._attach(params)
            case "Page.loadEventFired" if session == self._session:
                self._loaded.set()
            case "Page.navigatedWithinDocument" | "Page.windowOpen":
                self._note(params["url"])
            case "Page.frameRequestedNavigation" if params["frameId"] == self._target:
                self._note(params["url"])
            case "Page.javascriptDialogOpening":
                leaves = params["type"] == "beforeunload"
                self._pipe.post("Page.handleJavaScriptDialog", {"accept": leaves}, session)
            case "Browser.downloadWillBegin":
                self._refused["download"] += 1
                self._note(params["url"])
            case "Inspector.targetCrashed" if session == self._session:
                self._ended("crashed")

    def _note(self, url: str) -> None:
        if url.startswith(("http://", "https://")) and len(url) <= MAX_LINK and len(self._links) < MAX_LINKS:
            self._links[url] = None

    def _attach(self, params: Params) -> None:
        """Let a frame or worker of the page begin, and close windows that it opens."""
        info, session, post = params["targetInfo"], params["sessionId"], self._pipe.post
        type_, is_ours = info["type"], bool(self._context) and info.get("browserContextId") == self._context
        if type_ == "page" and is_ours and self._target:
            self._refused["window"] += 1
            self._note(info["url"])
            self._windows.add(info["targetId"])
            post("Runtime.runIfWaitingForDebugger", {}, session)  # it may share the process of its opener
            post("Target.closeTarget", {"targetId": info["targetId"]})
            return
        if type_ == "page" and is_ours:
            self._target, self._session = info["targetId"], session
            self._attached.set()
        if type_ in ("page", "iframe") and is_ours:
            if session != self._session:
                post("Page.enable", {}, session)
            post("Network.emulateNetworkConditions", _ONLINE, session)
            post("Network.setBypassServiceWorker", {"bypass": True}, session)
        if is_ours:
            post("Target.setAutoAttach", ATTACH, session)
        post("Runtime.runIfWaitingForDebugger", {}, session)

    # requests

    def _paused(self, params: Params, session: str) -> None:
        """Answer or refuse a request. Only those that need an answer of the crawler get a task."""
        request = params["request"]
        url = urldefrag(request["url"])[0]
        fields = {name.lower(): value for name, value in request["headers"].items()}
        type_ = type_of(params["resourceType"].lower(), fields)
        method, limits = request["method"], self._limits
        is_document = type_ == "frame" and params.get("frameId") == self._target
        self._quiet_since = asyncio.get_running_loop().time()
        if params.get("frameId") in self._windows:
            self._refuse(params, session, "")
        elif not url.startswith(("http://", "https://")):
            if url.startswith(("data:", "blob:", "about:")):
                self._pipe.post("Fetch.continueRequest", {"requestId": params["requestId"]}, session)
            else:
                self._refuse(params, session, "scheme")
        elif is_document and not self._has_document:
            self._has_document = True
            self._fulfil(params, session, self._exchange, _decoded(self._exchange, MAX_DOM), b"content-disposition")
        elif is_document:  # the page stays, and where it wanted to go is a link
            self._note(url)
            self._refused["navigation"] += 1
            self._loaded.set()  # it may never come now
            self._respond(params, session, 204, [], b"")
        elif method == "OPTIONS" and "access-control-request-method" in fields:
            self._answer_preflight(params, session, fields, url)
        elif type_ not in limits.load:
            self._refuse(params, session, f"type {type_}")
        elif not self._may_use(method, url):
            self._refuse(params, session, "method")
        elif self._requests >= limits.requests:
            self._refuse(params, session, "requests")
        elif self._bytes >= limits.bytes:
            self._refuse(params, session, "bytes")
        else:
            self._requests += 1
            passed = tuple(
                (name, value)
                for name, value in request["headers"].items()
                if name.lower() not in _OWN_FIELDS and not name.lower().startswith("sec-")
            )
            wanted = HttpRequest(url, method, passed, request.get("postData", "").encode(), type_)
            task = asyncio.create_task(self._ask(params, session, wanted))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _may_use(self, method: str, url: str) -> bool:
        return method in ("GET", "HEAD") or (method == "POST" and url.partition("?")[0] in self._limits.posts)

    async def _ask(self, params: Params, session: str, request: HttpRequest) -> None:
        self._in_flight += 1
        try:
            exchange = await self._answer(request)
            body = _decoded(exchange, self._limits.bytes - self._bytes)
            self._bytes += len(body)
            if exchange.truncated or self._bytes >= self._limits.bytes:
                self._refuse(params, session, "bytes")  # half a script is none
                return
            self._fulfil(params, session, exchange, body)
        except Refused as refused:
            self._refuse(params, session, refused.reason)
        except FetchFailed as failure:
            self._refuse(params, session, str(failure.kind))
        finally:
            self._in_flight -= 1
            self._quiet_since = asyncio.get_running_loop().time()

    def _answer_preflight(self, params: Params, session: str, fields: dict[str, str], url: str) -> None:
        """Allow what the page itself may do. The response to the request decides whether the page can read it."""
        method = fields["access-control-request-method"]
        if not self._may_use(method, url):
            self._refuse(params, session, "method")
            return
        allowed = {
            "Access-Control-Allow-Origin": fields.get("origin", "*"),
            "Access-Control-Allow-Credentials": "true",
            "Access-Control-Allow-Methods": method,
            "Access-Control-Allow-Headers": fields.get("access-control-request-headers", ""),
        }
        self._respond(params, session, 204, list(allowed.items()), b"")

    def _refuse(self, params: Params, session: str, reason: str) -> None:
        if reason:
            self._refused[reason] += 1
        failed = {"requestId": params["requestId"], "errorReason": "BlockedByClient"}
        self._pipe.post("Fetch.failRequest", failed, session)

    def _fulfil(self, params: Params, session: str, exchange: Exchange, body: bytes, without: bytes = b"") -> None:
        hidden = {without, b"set-cookie"} if exchange.set_cookies else {without}
        fields = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in exchange.headers
            if name.lower() not in _NOT_PASSED | hidden
        ]
        fields += [("Set-Cookie", value.text) for value in exchange.set_cookies]
        self._respond(params, session, exchange.status, fields, body)

    def _respond(
        self, params: Params, session: str, status: int, fields: Sequence[tuple[str, str]], body: bytes
    ) -> None:
        response = {"requestId": params["requestId"], "responseCode": status, "body": body}  # in base64
        headers = [{"name": name, "value": value} for name, value in fields]
        self._pipe.post("Fetch.fulfillRequest", {**response, "responseHeaders": headers}, session)


ATTACH: Params = {
    "autoAttach": True,
    "waitForDebuggerOnStart": True,
    "flatten": True,
    "filter": [{"type": "browser", "exclude": True}, {"type": "tab", "exclude": True}, {}],
}

_ONLINE: Params = {  # without a latency, `navigator.onLine` stays false in a namespace without an interface
    "offline": False,
    "latency": 1,
    "downloadThroughput": 1e9,
    "uploadThroughput": 1e9,
    "connectionType": "ethernet",
}


def type_of(named: str, fields: Mapping[str, str]) -> str:
    """The type of a request: what the browser says (Network.ResourceType), unless its fields say more. `frame` is the
    document of one, because a record with the type `document` is that of a page; `xhr` is all data, because `fetch` are
    the requests of handlers."""
    if fields.get("accept") == "text/event-stream":
        return "eventsource"
    if "prefetch" in fields.get("sec-purpose", fields.get("purpose", "")):
        return "prefetch"
    if named == "other" and fields.get("accept") == "*/*":
        return "script"  # of a worker; others are icons
    return {"document": "frame", "fetch": "xhr"}.get(named, named)


def _window(height: int) -> Params:
    return {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}


def _decoded(exchange: Exchange, most: int) -> bytes:
    coding = exchange.content_coding
    return decode_body(exchange.body, coding, max(1, most)).data if coding else exchange.body
