"""Pages and exchanges to archive."""

from __future__ import annotations

import gzip
from pathlib import Path

from msgspec import structs
from msgspec.structs import replace

from crawler.page import Exchange, Link, Outcome, Page
from crawler.sinks.archive_settings import ArchiveSettings

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
