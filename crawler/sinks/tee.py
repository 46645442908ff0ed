"""Combines the archive with the additional sinks of user code."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from crawler.defects import defect
from crawler.errors import SinkFull
from crawler.events import Events
from crawler.page import Exchange, Outcome, Page, Written
from crawler.sinks.sink import DurableSink, MayRepeat, Revoke, SettleLater, Sink
from frontier.settle import LeasedUrl

Call = tuple[Sink, Sequence[Page], Sequence[Exchange]]


class Tee:
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
            final = [page for page in pages if page.outcome is not Outcome.RETRY]
            self._calls = deque((sink, final, exchanges) for sink in self._sinks if final or exchanges)
        while self._calls:
            await self._write_next()
        kept = [page.failed() if page.url in self._failed else page for page in pages]
        written = await self._archive.write(kept, exchanges, leased)
        self._group = None
        return Written(written.duplicates, frozenset(self._failed))

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
