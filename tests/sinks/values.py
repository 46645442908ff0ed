"""Pages and exchanges to archive."""

from __future__ import annotations

import gzip
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from crawler.page import Exchange, Link, Outcome, Page
from crawler.sinks.archive import Archive
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.sink import Revoke
from frontier.settle import LeasedUrl

NOON = 1_790_000_000.123456  # 2026-09-21T14:13:20.123456Z

BODIES: dict[str, bytes] = {
    "normal": b"<!doctype html><title>A page</title><p>" + b"text " * 1000,
    "empty": b"",
    "one-byte": b"x",
    "binary": bytes(range(256)) * 40,
    "looks-like-warc": b"\r\n\r\nWARC/1.1\r\nWARC-Type: response\r\nContent-Length: 9\r\n\r\n" * 3,
    "looks-chunked": b"5\r\nhello\r\n0\r\n\r\n",
    "large": b"".join(b"%d line of a large page\n" % n for n in range(40_000)),
}


def settings(folder: Path, **more: object) -> ArchiveSettings:
    return replace(ArchiveSettings(folder=folder, crawl="news", replica="host-1a2b"), **more)


def exchange(name: str, body: bytes, *extra: bytes, **more: object) -> Exchange:
    """An exchange whose response has the header lines `extra` besides its type and length."""
    lines = [b"Content-Type: text/html; charset=utf-8", *extra]
    if not any(line.lower().startswith((b"transfer-encoding", b"content-length")) for line in lines):
        lines.append(b"Content-Length: %d" % len(body))
    made = Exchange(
        url=f"https://site.test/{name}",
        status=200,
        reason="OK",
        headers=tuple((key, value) for key, _, value in (line.partition(b": ") for line in lines)),
        request_head=b"GET /%b HTTP/1.1\r\nHost: site.test\r\nUser-Agent: peercrawl/1\r\n\r\n" % name.encode(),
        response_head=b"HTTP/1.1 200 OK\r\n" + b"\r\n".join(lines) + b"\r\n\r\n",
        body=body,
        address="192.0.2.7",
        started_at=NOON,
        elapsed=0.25,
        first_byte=0.1,
    )
    return structs.replace(made, **more)


def page(made: Exchange | None, name: str = "", **more: object) -> Page:
    url = made.url if made else f"https://site.test/{name}"
    fresh = Page(url, "site.test", 1, Outcome.DONE, "ok", NOON + 1, exchange=made, links=(Link("https://a.test/"),))
    return structs.replace(fresh, **more)


@asynccontextmanager
async def archiving(folder: Path, wall: Callable[[], float] = time.time, **more: object) -> AsyncIterator[Archive]:
    """An archive in `folder`, started and stopped. `more`: its settings."""
    archive = Archive(settings(folder, **more), wall)
    await archive.start()
    yield archive
    await archive.stop()


async def archived(folder: Path, *groups: Sequence[Page], exchanges: Sequence[Exchange] = (), **more: Any) -> None:
    """Write each of `groups` to an archive in `folder`, with `exchanges`."""
    async with archiving(folder, **more) as archive:
        for group in groups:
            await archive.write(group, exchanges)


async def inherit(folder: Path, revoke: Revoke, **more: object) -> None:
    """Finish the files of a dead writer in `folder`."""
    heir = Archive(settings(folder, replica="heir", **more))
    await heir.start(revoke)
    await heir.stop()


def disowning(names: str) -> Revoke:
    """Says that of the leases in a journal, those of the pages called one of `names` were not settled."""

    async def revoke(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        assert crawl == "news"
        return [url.entry.url.rpartition("/")[2] in names for url in urls]

    return revoke


def varied_exchanges() -> list[Exchange]:
    """One of each kind that may be difficult for WARC readers."""
    made = [exchange(name, body) for name, body in BODIES.items()]
    made += [
        exchange("chunked", b"chunked body " * 100, b"Transfer-Encoding: chunked"),
        exchange("chunked-and-length", b"both " * 100, b"transfer-encoding:chunked", b"Content-Length: 3"),
        exchange("gzipped", gzip.compress(b"compressed " * 500), b"Content-Encoding: gzip"),
        exchange("truncated", b"cut " * 100, b"Content-Length: 99999", truncated="length"),
        exchange("latin-1", b"caf\xe9" * 10, b"X-Name: caf\xe9", b"Location: /\xe4"),
        exchange("utf-8", b"page " * 10, "X-Name: Żółw".encode()),
        exchange("tls", b"secret " * 10, tls="TLS_AES_256_GCM_SHA384 TLSv1.3"),
        exchange("no-length", b"until the end " * 10, b"Connection: close", b"Content-Length: 140"),
        exchange("ipv6", b"six " * 10, address="2001:db8::7"),
    ]
    return made
