"""The HTTP server of a replica: /metrics, /healthz, /readyz. Read-only: nothing on the network changes a crawl's state."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from crawler.errors import UserError


class StatusServer:
    """Serves at `listen` ("address:port"). `why_not_ready` returns a reason, or None when the replica is ready."""

    def __init__(self, listen: str, metrics: Callable[[], bytes], why_not_ready: Callable[[], str | None]) -> None:
        self._host, _, port = listen.rpartition(":")
        if not port.isdigit():
            raise UserError(f"listen address {listen!r}: write it as ADDRESS:PORT, such as 127.0.0.1:9410")
        self._port = int(port)
        self._metrics = metrics
        self._why_not_ready = why_not_ready
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def start(self) -> None:
        app = web.Application()
        app.add_routes(
            [
                web.get("/metrics", self._serve_metrics),
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host.strip("[]") or None, self._port)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise UserError(
                f"cannot listen at {self._host}:{self._port}: {error.strerror}; choose another --listen"
            ) from error
        host, port, *_ = self._runner.addresses[0]
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _serve_metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._why_not_ready()
        return web.Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)
