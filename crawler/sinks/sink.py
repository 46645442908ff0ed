"""The interface of sinks, which store settled pages: the archive, and additional sinks from user code."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from crawler.defects import defect
from crawler.errors import SinkFull
from crawler.events import Events
from crawler.page import Exchange, Outcome, Page, Written
from frontier.settle import LeasedUrl

Revoke = Callable[[Sequence[LeasedUrl], str], Awaitable[Sequence[bool | None]]]
"""Takes URLs and the name of their crawl. Returns for each URL whether it was not settled under its lease, None if that is
unknown. Raises RedisAway."""

MayRepeat = Callable[[LeasedUrl], bool]
"""Whether it may still turn out that a URL that was settled is not."""

SettleLater = Callable[[Collection[int]], Awaitable[None]]
"""`DurableSink.settled` for a group that was set aside."""


class Sink(Protocol):
    async def start(self) -> None:
        """Prepare for `write`."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> object:
        """Return when the records of `pages` and of further `exchanges`, such as of a robots.txt or a requisite, are
        durable. The result is ignored.

        Raises SinkFull during an outage, such as a full disk; the call is then repeated until it succeeds. After any other
        exception, the pages are passed one by one, and those that raise again are settled as defects.
        """

    async def stop(self) -> None:
        """Finish the files. Nothing is written afterwards."""


class DurableSink(Protocol):
    """The sink that a replica commits to. It can remove pages that turn out not to be settled."""

    @property
    def written_bytes(self) -> int:
        """Bytes made durable since the start."""

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        """Prepare for `write`. `revoke` says which of the pages that dead replicas wrote last were not settled. A page for
        which `may_repeat` is true can be taken back however long ago it was written."""

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """Return when the records of `pages` and of further `exchanges`, such as of a robots.txt, are durable.

        `leased`: the lease under which each of `pages` was fetched. If it is given, `settled` must be called before the
        next group is written. Raises SinkFull if there is no room. Then nothing is kept, and the call may be repeated.
        """

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """Report that the last group is settled, except for the pages with the indexes `unsettled`. Their leases were lost
        before they were settled, so they are removed.

        Raises SinkFull if there is no room to do so. Then the call may be repeated.
        """

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        """Remove the pages of `urls`, if they were written in the last seconds. Redis has lost that they were settled, and
        others fetch them. Must not be called between `write` and `settled`."""

    async def set_aside(self) -> SettleLater:
        """Set the last group aside, which is not settled yet, so that other groups can be written meanwhile. The call that
        is returned takes the place of `settled`."""

    async def stop(self, is_in_doubt: bool = False) -> int:
        """Finish the files, and return how many could not be uploaded. Nothing is written afterwards. `is_in_doubt`: what
        was settled in the last seconds may be lost. Then the last files stay open, and the next start asks which of their
        pages are settled."""


class SinkContext(msgspec.Struct, frozen=True):
    """The argument of the factory of an additional sink: `factory(context) -> Sink`."""

    folder: Path
    crawl: str
    replica: str


Call = tuple[Sink, Sequence[Page], Sequence[Exchange]]


class CombinedSink:
    """Writes each group to `sinks`, one after the other, and then to `archive`, so that the archive can say which pages the
    others could not handle. Only the archive can remove pages. It also keeps the responses of URLs that are tried again;
    the others get a URL once, when it is settled.

    If a sink raises for a group, it gets the pages and exchanges of the group one by one. If it raises SinkFull, the caller
    repeats the call with the same group object, and the sinks get only what they have not yet taken.
    """

    def __init__(self, archive: DurableSink, sinks: Sequence[Sink], events: Events | None = None) -> None:
        self._archive = archive
        self._sinks = sinks
        self._events = events or Events()
        self._group: Sequence[Page] | None = None
        self._calls: deque[Call] = deque()
        self._failed: set[str] = set()

    @property
    def written_bytes(self) -> int:
        """Bytes that the archive made durable. The additional sinks write the same pages elsewhere."""
        return self._archive.written_bytes

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        await self._archive.start(revoke, may_repeat)
        for sink in self._sinks:
            await sink.start()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """See `DurableSink.write`."""
        if self._group is not pages:
            self._group, self._failed = pages, set()
            settled = [page for page in pages if page.outcome is not Outcome.RETRY]
            final = [page for page in settled if not page.is_requisite]
            others = [page.exchange for page in settled if page.is_requisite and page.exchange is not None]
            others = [*exchanges, *others]
            self._calls = deque((sink, final, others) for sink in self._sinks if final or others)
        while self._calls:
            await self._write_next()
        kept = [page.failed() if page.url in self._failed else page for page in pages]
        written = await self._archive.write(kept, exchanges, leased)
        self._group = None
        return msgspec.structs.replace(written, failed=frozenset(self._failed))

    async def _write_next(self) -> None:
        sink, pages, exchanges = self._calls[0]
        try:
            await sink.write(pages, exchanges)
        except SinkFull:
            raise
        except Exception as error:  # user code may raise anything
            self._calls.popleft()
            if len(pages) + len(exchanges) == 1:
                (url,) = [page.url for page in pages] or [exchange.url for exchange in exchanges]
                self._failed.update(page.url for page in pages)
                self._events.emit(defect("record", url, error))
            else:
                single: list[Call] = [(sink, [page], ()) for page in pages]
                single += [(sink, (), [exchange]) for exchange in exchanges]
                self._calls.extendleft(reversed(single))
        else:
            self._calls.popleft()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `DurableSink.settled`."""
        await self._archive.settled(unsettled)

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        """See `DurableSink.take_back`."""
        await self._archive.take_back(urls)

    async def set_aside(self) -> SettleLater:
        """See `DurableSink.set_aside`."""
        return await self._archive.set_aside()

    async def stop(self, is_in_doubt: bool = False) -> int:
        left = await self._archive.stop(is_in_doubt)
        for sink in self._sinks:
            await sink.stop()
        return left
