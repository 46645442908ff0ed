"""Requests that a handler makes itself: `crawl.fetch` returns the answer as a page, `crawl.download` saves it to a file."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from weakref import WeakValueDictionary

import msgspec

from crawler.errors import Refused
from crawler.handlers.parsed_page import Download, ParsedPage
from crawler.hooks import ExtraRequest, Visit
from crawler.page import Exchange, Outcome, Page
from crawler.parse.coding import decode_body
from crawler.parse.document import Document, ParseLimits, read
from crawler.parse.encoding import MediaType
from crawler.parse.html import ExtractPolicy
from frontier.urls import UrlRules, canonicalize, decoded_reference, origin_of

FILES = "files"
"""The folder of downloaded files, in the output folder."""

MOST_REDIRECTS = 10
MOST_REMEMBERED = 10_000
"""Redirects that are followed; and downloads whose URLs are remembered, each about 500 bytes."""

LARGE_BODY = 256 << 10
"""Bytes of an answer from which on it is parsed in a thread."""

AS_WRITTEN = UrlRules(strip_params=(), session_params=())
"""Parameters are not removed from URLs that a handler asks for."""

_FRAMING = frozenset({"host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade"})
_SECRET = frozenset({"authorization", "cookie", "proxy-authorization"})
_LIMITS = ParseLimits(ExtractPolicy(obey_nofollow=False), 64 << 20)

Fields = tuple[tuple[str, str], ...]


def encoded_body(data: Mapping[str, Any] | None, json: Any, body: bytes | None) -> tuple[bytes, str]:
    """The body of a request and its media type, from a form, a value for JSON, or bytes. Raises ValueError if there are
    several."""
    if (data is not None) + (json is not None) + (body is not None) > 1:
        raise ValueError("a request has one body: data, json or body")
    if data is not None:
        return urlencode(data, doseq=True).encode(), "application/x-www-form-urlencoded"
    if json is not None:
        return msgspec.json.encode(json), "application/json"
    return body or b"", ""


class Files:
    """Downloaded files in `folder`, each under the digest of its contents; None: there is no folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._known: dict[str, Download] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, url: str) -> asyncio.Lock:
        """What lets one task at a time download `url`."""
        return self._turns.setdefault(url, asyncio.Lock())

    def known(self, url: str) -> Download | None:
        """What was downloaded from `url`, if this replica remembers it and the file is there."""
        found = self._known.get(url)
        return found if found and self._folder and (self._folder.parent / found.path).exists() else None

    def save(self, url: str, body: bytes, content_type: str) -> Download:
        """Save `body` unless the file is there, so that it is there completely or not at all."""
        if self._folder is None:
            raise Refused("offline", "files are downloaded in a crawl only")
        digest = hashlib.sha256(body).hexdigest()
        path = self._folder / digest[:2] / f"{digest}{mimetypes.guess_extension(content_type) or ''}"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Each has a name of its own: several replicas may save the same.
            scratch = self._folder / f".{secrets.token_hex(8)}"
            try:
                with scratch.open("xb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                scratch.rename(path)
            finally:
                scratch.unlink(missing_ok=True)
        saved = Download(url, str(path.relative_to(self._folder.parent)), content_type, len(body), digest)
        self._known[url] = saved
        if len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return saved


class VisitRequests:
    """Makes the requests of the handler of `page` during `visit`; None: it cannot make any. `page`: None for a program."""

    def __init__(self, page: ParsedPage | None, visit: Visit | None, files: Files) -> None:
        self._page = page
        self._visit = visit
        self._files = files

    def url_of(self, written: str) -> str:
        """The canonical URL of `written`, which may be relative to the page. Raises BadUrl."""
        is_whole = self._page is None or written[:8].lower().startswith(("http://", "https://"))
        base = None if is_whole or self._page is None else self._page.base
        return canonicalize(written, base, AS_WRITTEN).href

    async def fetch(
        self,
        written: str,
        method: str,
        data: Mapping[str, Any] | None,
        json: Any,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> ParsedPage:
        """See `Handle.fetch`."""
        content, media = encoded_body(data, json, body)
        chosen = method.upper() or ("POST" if content or media else "GET")
        return await answered(await self._exchange(self.url_of(written), chosen, content, media, headers))

    async def download(self, written: str, headers: Mapping[str, str]) -> Download:
        """See `Handle.download`."""
        url = self.url_of(written)
        async with self._files.turn(url):
            return self._files.known(url) or await self._download(url, headers)

    async def _download(self, url: str, headers: Mapping[str, str]) -> Download:
        exchange = await self._exchange(url, "GET", b"", "", headers)
        if exchange.status != 200:
            raise Refused(f"http_{exchange.status}", url)
        if exchange.truncated:
            raise Refused("truncated", f"{url}: {exchange.truncated}")
        media = MediaType.parse((exchange.header_list(b"content-type") or b"").decode("latin-1")).essence

        def save() -> Download:
            decoded = decode_body(exchange.body, exchange.content_coding, _LIMITS.max_decoded)
            if decoded.truncated or decoded.error:
                raise Refused("truncated", f"{url}: {decoded.error or 'length'}")
            return self._files.save(url, decoded.data, media)

        return await asyncio.to_thread(save)

    async def _exchange(self, url: str, method: str, body: bytes, media: str, headers: Mapping[str, str]) -> Exchange:
        """Make a request, and follow redirects as RFC 9110 15.4 says."""
        if self._visit is None:
            raise Refused("offline", "requests are made in a crawl only")
        fields = {name.lower(): (name, value) for name, value in headers.items()}
        if unusable := _FRAMING & fields.keys():
            raise ValueError(f"the header field {min(unusable)} cannot be set")
        if media:
            fields.setdefault("content-type", ("Content-Type", media))
        for _ in range(MOST_REDIRECTS + 1):
            exchange = await self._visit.send(ExtraRequest(url, method, tuple(fields.values()), body))
            location = exchange.header(b"location")
            if exchange.status not in (301, 302, 303, 307, 308) or not location:
                return exchange
            target = canonicalize(decoded_reference(location), url, AS_WRITTEN).href
            if (exchange.status == 303 and method != "HEAD") or (exchange.status < 303 and method == "POST"):
                method, body = "GET", b""
                fields.pop("content-type", None)
            if origin_of(target) != origin_of(url):
                fields = {name: field for name, field in fields.items() if name not in _SECRET}
            url = target
        raise Refused("redirects", f"{url}: more than {MOST_REDIRECTS}")


async def answered(exchange: Exchange) -> ParsedPage:
    """The answer in `exchange` as a page."""

    def parsed() -> ParsedPage:
        content_type = (exchange.header_list(b"content-type") or b"").decode("latin-1")
        if exchange.encoding:
            content_type = f"{MediaType.parse(content_type).essence or 'text/html'}; charset={exchange.encoding}"
        document = Document(exchange.body, exchange.url, exchange.content_coding, content_type)
        reason = "ok" if 200 <= exchange.status < 300 else f"http_{exchange.status}"
        domain = canonicalize(exchange.url, None, AS_WRITTEN).domain
        page = Page(exchange.url, domain, 0, Outcome.DONE, reason, exchange.started_at, exchange=exchange)
        return ParsedPage.of(read(document, _LIMITS).describe(page, content_type, exchange.truncated))

    return await asyncio.to_thread(parsed) if len(exchange.body) > LARGE_BODY else parsed()
