"""Debian's headless Chromium, driven by its own protocol: https://chromedevtools.github.io/devtools-protocol/"""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import tempfile
from typing import Any

import aiohttp

TIMEOUT_S = 180.0


class Browser:
    """One page in a separate Chromium with further `options`. `errors`: errors that the page logged."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self.errors: list[str] = []
        self._numbers = itertools.count(1)
        self._folder = tempfile.mkdtemp(prefix="pc-chromium-")

    async def __aenter__(self) -> Browser:
        words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-port=0"]
        words += [f"--user-data-dir={self._folder}", *self._options, "about:blank"]
        self._process = await asyncio.create_subprocess_exec(
            "chromium", *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        assert self._process.stderr is not None
        async with asyncio.timeout(TIMEOUT_S):
            while b"DevTools listening on ws://" not in (line := await self._process.stderr.readline()):
                assert line, "Chromium did not start"
        port = int(line.split(b":")[2].split(b"/")[0])
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://127.0.0.1:{port}/json/list") as response:
            pages = [target for target in await response.json() if target["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._socket.close()
        await self._session.close()
        self._process.kill()
        await self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(TIMEOUT_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    return dict(message.get("result") or message)
                self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["level"] == "error":
            self.errors.append(message["params"]["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.errors.append(str(message["params"]["exceptionDetails"]))

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = await self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        return result["result"].get("value")

    async def wait_for(self, expression: str) -> None:
        """Wait until a JavaScript expression is true."""
        async with asyncio.timeout(TIMEOUT_S):
            while not await self.value(expression):  # noqa: ASYNC110 - the page is another process
                await asyncio.sleep(0.05)

    async def look(self, width: int, height: int, dark: bool = False) -> None:
        """A window of this size, and the reader's wish for light or dark."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def screenshot(self) -> bytes:
        """Return the window as a PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])
