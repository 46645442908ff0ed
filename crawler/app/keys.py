"""Serves the key directory of an operator over HTTP, for a web server in front of it that adds TLS, and fetches one as
a site does that checks a signature."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from http import HTTPStatus
from urllib.parse import unquote, urlsplit

import msgspec
from aiohttp import web

from crawler.app.requests import fetch_settings
from crawler.errors import FetchFailed, UserError
from crawler.fetch import library_privates
from crawler.fetch.client import Fetcher
from crawler.identity.keys import SigningKey
from crawler.identity.signatures import NotDecided
from crawler.identity.web_bot_auth import LONGEST_DIRECTORY, WELL_KNOWN, SignedDirectory, signed_directory
from crawler.parse.coding import decode_body
from crawler.settings.load import Settings, extended
from frontier.clock import SystemClock

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


class Directory(msgspec.Struct, frozen=True):
    """A directory as it was served. `content`: the body as received; `body`: the same without content coding."""

    url: str
    fields: tuple[tuple[str, str], ...]
    content: bytes
    body: bytes


async def fetch_directory(url: str, settings: Settings) -> Directory:
    """Fetch the directory at `url`: one GET over https, no redirects, within the address policy and limits of every
    other request (draft, section "Server-Side Request Forgery").

    That of `settings` itself may have any port: `fetch.ports` is for URLs of strangers.
    Raises NotDecided if there is none."""
    library_privates.install()
    if url == settings.identity.directory and (port := urlsplit(url).port):
        settings = msgspec.structs.replace(settings, fetch=extended(settings.fetch, {"ports": (port,)}))
    limits = msgspec.structs.replace(fetch_settings(settings, max_idle=1), max_body_bytes=LONGEST_DIRECTORY + 1)
    fetcher = Fetcher(limits, SystemClock())
    await fetcher.start()
    try:
        exchange = await fetcher.fetch(url)
    except FetchFailed as error:
        raise NotDecided(f"the directory at {url} cannot be fetched: {error}") from error
    finally:
        await fetcher.stop(0.0)
    if exchange.status != HTTPStatus.OK:
        raise NotDecided(f"the directory at {url} is served with status {exchange.status}: it has to be 200")
    coding = exchange.header(b"content-encoding") or b""
    decoded = decode_body(exchange.body, coding.decode("latin-1"), LONGEST_DIRECTORY + 1)
    if exchange.truncated or decoded.error or decoded.truncated:
        raise NotDecided(f"the directory at {url} is incomplete, or longer than {LONGEST_DIRECTORY:,} bytes")
    fields = tuple((name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in exchange.headers)
    return Directory(url, fields, exchange.body, decoded.data)
