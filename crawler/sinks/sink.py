"""What a sink is: where settled pages go. The archive is one, and installed packages bring others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from crawler.page import Exchange, Page
from frontier.queue import LeasedUrl

Revoke = Callable[[Sequence[LeasedUrl], str], Awaitable[Sequence[bool]]]
"""For each URL, of the crawl of that name, whether it was not settled under its lease. Raises RedisAway."""


class Sink(Protocol):
    """Where settled pages go."""

    @property
    def written_bytes(self) -> int:
        """Bytes made durable since the start."""

    async def start(self) -> None:
        """Make ready for `write`."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        """Return when the records of `pages`, and of further `exchanges` (robots.txt), are durable: the URLs of the pages
        whose body was kept before, so that it was not kept again.

        Raises SinkFull when there is no room for them: then none of them is kept, and the same call may be made again.
        """

    async def stop(self) -> None:
        """Finish the files. Nothing can be written afterwards."""


class DurableSink(Sink, Protocol):
    """The sink that a replica commits to: it takes pages back that turn out not to be settled."""

    async def start(self, revoke: Revoke | None = None) -> None:
        """Make ready for `write`. `revoke` answers which of the pages that dead replicas wrote last were not settled."""

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> frozenset[str]:
        """See `Sink.write`. `leased`: for each of `pages`, under which lease it was fetched; then `settled` must be called
        before the next group is written."""

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """The group that was written last is settled, but for its `unsettled` pages, by their numbers: they were fetched
        under a lease that was lost, and are taken back.

        Raises SinkFull when there is no room to do so: then the same call may be made again.
        """


class SinkContext(msgspec.Struct, frozen=True):
    """What the factory of a further sink is told: `factory(context) -> Sink`."""

    folder: Path
    crawl: str
    replica: str
