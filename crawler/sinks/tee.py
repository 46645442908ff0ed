"""Several sinks as one: the archive, and those that installed packages bring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from crawler.page import Exchange, Page
from crawler.sinks.archive import Sink


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What the factory of a further sink is told: `factory(context) -> Sink`."""

    folder: Path
    crawl: str
    replica: str


class Tee:
    """Writes each group to all `sinks`, one after the other; the first says which bodies were kept before.

    A group that one of them had no room for is offered again, as the same objects; the sinks before it, which have it
    already, are then passed over.
    """

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self._group: tuple[Sequence[Page], Sequence[Exchange]] | None = None
        self._written = 0
        self._duplicates: frozenset[str] = frozenset()

    @property
    def written_bytes(self) -> int:
        """Octets that the first sink made durable: the further ones write the same pages elsewhere."""
        return self._sinks[0].written_bytes

    async def start(self) -> None:
        for sink in self._sinks:
            await sink.start()

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        """See `Sink.write`."""
        if self._group is None or self._group[0] is not pages:
            self._group, self._written = (pages, exchanges), 0
        for sink in self._sinks[self._written :]:
            duplicates = await sink.write(pages, exchanges)
            if self._written == 0:
                self._duplicates = duplicates
            self._written += 1
        self._group = None
        return self._duplicates

    async def stop(self) -> None:
        for sink in self._sinks:
            await sink.stop()
