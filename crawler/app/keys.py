"""Serves the key directory of an operator over HTTP, for a web server in front of it that adds TLS."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from aiohttp import web

from crawler.errors import UserError
from crawler.identity.keys import SigningKey
from crawler.identity.web_bot_auth import WELL_KNOWN, SignedDirectory, signed_directory

CACHED_S = 3_600
"""Seconds for which verifiers may keep the directory. A key that is removed is accepted for as long."""

SIGNED_S = 7 * 86_400
"""Seconds for which the signatures are valid: the draft asks for much longer than readers keep the directory."""


class KeyServer:
    """Serves the directory with `keys` at the path of `url`, and at the well-known path. `wall`: seconds since 1970.

    Each response has a signature per key. They are made for the authority in `identity.directory`, whatever the Host
    field of a request says: otherwise anyone could have the keys bound to their own name."""

    def __init__(self, keys: Sequence[SigningKey], url: str, wall: Callable[[], float] = time.time) -> None:
        self._keys = keys
        self._url = url
        self._wall = wall
        self._signed: SignedDirectory | None = None
        self._signed_at = 0.0
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def paths(self) -> list[str]:
        return list(dict.fromkeys([urlsplit(self._url).path or "/", WELL_KNOWN]))

    async def start(self, address: str) -> None:
        """Listen at `address`, "HOST:PORT". Raises UserError if that is not possible."""
        host, _, port = address.rpartition(":")
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)  # and HEAD; a path with braces would be a pattern
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host.strip("[]") or None, int(port)).start()
        except OSError as error:
            await self._runner.cleanup()
            raise UserError(f"cannot listen at {address}: {error.strerror}; choose another --listen") from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path not in [unquote(path) for path in self.paths]:
            raise web.HTTPNotFound
        signed = self._directory()
        headers = dict(signed.fields) | {
            "Cache-Control": f"max-age={CACHED_S}",
            "ETag": f'"{dict(signed.fields)["Content-Digest"][9:-1]}"',
            "Access-Control-Allow-Origin": "*",
        }
        known = ", ".join(request.headers.getall("If-None-Match", []))
        if known.strip() == "*" or headers["ETag"] in re.findall(r'"[^"]*"', known):  # W/ is ignored: RFC 9110 13.1.2
            return web.Response(status=304, headers=headers)
        return web.Response(body=signed.body, headers=headers)

    def _directory(self) -> SignedDirectory:
        """The directory, signed again once an hour."""
        now = self._wall()
        if self._signed is None or not 0 <= now - self._signed_at < CACHED_S:
            self._signed, self._signed_at = signed_directory(self._keys, self._url, now, SIGNED_S), now
        return self._signed
