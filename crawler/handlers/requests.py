"""Requests that a handler makes itself: `crawl.fetch` returns the answer as a page, `crawl.download` saves it to a file."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from crawler.errors import FetchFailed, Refused
from crawler.handlers.parsed_page import MAX_DECODED, Download, ParsedPage, page_of
from crawler.hooks import HttpRequest, Visit
from crawler.page import Exchange, Extra
from crawler.parse.coding import decode_body
from crawler.parse.document import Document, ParsedDocument, ParseLimits, read
from crawler.parse.encoding import MediaType
from crawler.parse.html import ExtractPolicy
from crawler.request import Request
from frontier.entries import HOPS, RequestData
from frontier.errors import BadUrl
from frontier.urls import UrlRules, canonicalize, decoded_reference, origin_of

FILES = "files"
"""The folder of downloaded files, in the output folder."""

MOST_REDIRECTS = len(HOPS) - 1
MOST_REMEMBERED = 10_000
"""Redirects that are followed, as many as from page to page; and downloads whose URLs are remembered, each about 500
bytes."""

AS_WRITTEN = UrlRules(strip_params=(), session_params=())
"""Parameters are not removed from URLs that a handler asks for."""

_EXTRACT = ExtractPolicy(obey_nofollow=False)

T = TypeVar("T")


async def _read_in_thread(document: Document, limits: ParseLimits, exchange: Exchange) -> ParsedDocument:
    return await asyncio.to_thread(read, document._replace(body=exchange.body), limits)


async def _at_once(work: Awaitable[T]) -> T:
    return await work


class Files:
    """Downloaded files in `folder`, each under the digest of its contents; None: there is no folder. `max_decoded`: the
    most bytes of an answer after decompression, also of one that is no file; `read`: what reads documents."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.max_decoded = MAX_DECODED
        self.read = _read_in_thread
        self._known: dict[str, Download] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def turn(self, key: str) -> asyncio.Lock:
        """What lets one task at a time download what is saved for `key`: a URL, and what else tells requests apart."""
        return self._turns.setdefault(key, asyncio.Lock())

    def known(self, key: str) -> Download | None:
        """What was saved for `key`, if this replica remembers it and the file is there."""
        found = self._known.get(key)
        return found if found and self._folder and (self._folder.parent / found.path).exists() else None

    def save(self, key: str, url: str, body: bytes, content_type: str) -> Download:
        """Save `body` for `key` unless the file is there, so that it is there completely or not at all."""
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
        self._known[key] = saved
        if len(self._known) > MOST_REMEMBERED:
            del self._known[next(iter(self._known))]
        return saved


class KnownAnswers:
    """A visit without a crawl, whose requests get `answers`, by URL: those for the same URL in their order, the last one
    again and again."""

    def __init__(self, answers: Iterable[tuple[str, Exchange | FetchFailed | Refused]]) -> None:
        self.extras: list[Extra] = []
        self._answers: dict[str, list[Exchange | FetchFailed | Refused]] = {}
        for url, answer in answers:
            self._answers.setdefault(url, []).append(answer)

    async def send(self, request: HttpRequest) -> Exchange:
        """See `crawler.hooks.Visit`."""
        known = self._answers.get(request.url)
        if not known:
            raise Refused("no_answer", f"there is no answer for {request.url}")
        answer = known.pop(0) if len(known) > 1 else known[0]
        if isinstance(answer, (FetchFailed, Refused)):
            raise answer
        return answer

    def ends_in(self, seconds: float) -> None:
        """There is no limit."""


class VisitRequests:
    """Makes the requests of the handler of `page` during `visit`; None: it cannot make any. `page`: None for a program.
    `wait_for` waits for what takes long, and `prepare` for what is slow to do with an answer."""

    def __init__(
        self,
        page: ParsedPage | None,
        visit: Visit | None,
        files: Files,
        wait_for: Callable[[Awaitable[Any]], Awaitable[Any]] = _at_once,
        prepare: Callable[[ParsedPage], Awaitable[None]] | None = None,
    ) -> None:
        self._wait_for = wait_for
        self._prepare = prepare
        self._page = page
        self._visit = visit
        self._files = files

    def url_of(self, written: str) -> str:
        """The canonical URL of `written`, which may be relative to the page. Raises Refused."""
        is_whole = self._page is None or written[:8].lower().startswith(("http://", "https://"))
        base = None if is_whole or self._page is None else self._page.base
        return _joined(written, base)

    async def fetch(self, request: Request) -> ParsedPage:
        """See `Handle.fetch`."""
        answer: ParsedPage = await self._wait_for(self._answer(self.url_of(request.url), request.request))
        return answer

    async def _answer(self, url: str, request: RequestData) -> ParsedPage:
        exchange = await self._exchange(url, request)
        content_type = exchange.header_text(b"content-type")
        if exchange.encoding:
            content_type = f"{MediaType.parse(content_type).essence or 'text/html'}; charset={exchange.encoding}"
        document = Document(b"", exchange.url, exchange.content_coding, content_type)
        reading = await self._files.read(document, ParseLimits(_EXTRACT, self._files.max_decoded), exchange)
        answer = ParsedPage.of(reading.describe(page_of(exchange), content_type, exchange.truncated))
        if self._prepare is not None:
            await self._prepare(answer)
        return answer

    async def download(self, request: Request) -> Download:
        """See `Handle.download`."""
        url = self.url_of(request.url)
        file: Download = await self._wait_for(self._download(url, f"{url}#{request.key}", request.request))
        return file

    async def _download(self, url: str, key: str, request: RequestData) -> Download:
        async with self._files.turn(key):
            return self._files.known(key) or await self._downloaded(url, key, request)

    async def _downloaded(self, url: str, key: str, request: RequestData) -> Download:
        exchange = await self._exchange(url, request)
        if exchange.status != 200:
            raise Refused(f"http_{exchange.status}", url)
        if exchange.truncated:
            raise Refused("truncated", f"{url}: {exchange.truncated}")
        media = MediaType.parse(exchange.header_text(b"content-type")).essence

        def save() -> Download:
            decoded = decode_body(exchange.body, exchange.content_coding, self._files.max_decoded)
            if decoded.truncated or decoded.error:
                raise Refused("truncated", f"{url}: {decoded.error or 'length'}")
            return self._files.save(key, url, decoded.data, media)

        return await asyncio.to_thread(save)

    async def _exchange(self, url: str, request: RequestData) -> Exchange:
        if self._visit is None:
            raise Refused("offline", "requests are made in a crawl only")
        for _ in range(MOST_REDIRECTS + 1):
            wanted = HttpRequest(url, request.method, request.headers, request.body, is_private=request.is_private)
            exchange = await self._visit.send(wanted)
            location = exchange.header(b"location")
            if exchange.status not in (301, 302, 303, 307, 308) or not location:
                return exchange
            target = _joined(decoded_reference(location), url)
            request = request.redirected(exchange.status, origin_of(target) == origin_of(url))
            url = target
        raise Refused("redirects", f"{url}: more than {MOST_REDIRECTS}")


def _joined(written: str, base: str | None) -> str:
    try:
        return canonicalize(written, base, AS_WRITTEN).href
    except BadUrl as error:
        raise Refused("bad_url", str(error)) from error
