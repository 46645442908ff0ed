"""Several sinks as one: the archive, and those that installed packages bring."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crawler.page import Exchange, Page
from crawler.sinks.sink import DurableSink, Revoke, Sink
from frontier.queue import LeasedUrl


class Tee:
    """Writes each group to `archive`, which says which bodies were kept before, and then to `sinks`, one after the other.
    Only the archive can take pages back.

    A group that one of them had no room for is offered again, as the same objects; the sinks before it, which have it
    already, are then passed over.
    """

    def __init__(self, archive: DurableSink, sinks: Sequence[Sink]) -> None:
        self._archive = archive
        self._sinks = sinks
        self._group: tuple[Sequence[Page], Sequence[Exchange]] | None = None
        self._written = 0
        self._duplicates: frozenset[str] = frozenset()

    @property
    def written_bytes(self) -> int:
        """Bytes that the archive made durable: the further sinks write the same pages elsewhere."""
        return self._archive.written_bytes

    async def start(self, revoke: Revoke | None = None) -> None:
        await self._archive.start(revoke)
        for sink in self._sinks:
            await sink.start()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> frozenset[str]:
        """See `DurableSink.write`."""
        if self._group is None or self._group[0] is not pages:
            self._duplicates = await self._archive.write(pages, exchanges, leased)
            self._group, self._written = (pages, exchanges), 0
        for sink in self._sinks[self._written :]:
            await sink.write(pages, exchanges)
            self._written += 1
        self._group = None
        return self._duplicates

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `DurableSink.settled`."""
        await self._archive.settled(unsettled)

    async def stop(self) -> None:
        await self._archive.stop()
        for sink in self._sinks:
            await sink.stop()
