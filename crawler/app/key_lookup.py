"""Fetches the key directory of a crawler, as a site does that checks a signature: one GET over https, no redirects,
within the address policy and limits of every other request (draft, section "Server-Side Request Forgery")."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlsplit

import msgspec

from crawler.app.build import fetch_settings
from crawler.errors import FetchFailed
from crawler.fetch import library_patches
from crawler.fetch.client import Fetcher
from crawler.identity.message_signatures import NotDecided
from crawler.identity.web_bot_auth import LONGEST_DIRECTORY
from crawler.parse.content_coding import decode_body
from crawler.settings.load import Settings, extended
from frontier.clock import SystemClock


class Directory(msgspec.Struct, frozen=True):
    """A directory as it was served. `content`: the body as received; `body`: the same without content coding."""

    url: str
    fields: tuple[tuple[str, str], ...]
    content: bytes
    body: bytes


async def fetch_directory(url: str, settings: Settings) -> Directory:
    """Fetch the directory at `url`. That of `settings` itself may have any port: `fetch.ports` is for URLs of strangers.
    Raises NotDecided if there is none."""
    library_patches.install()
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
