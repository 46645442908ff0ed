"""A sink whose process has a slow archive: a group is in the files for some time before `Archive.write` returns, and so
before it is settled."""

from __future__ import annotations

from collections.abc import Sequence

from crawler.page import Exchange, Page, Written
from crawler.sinks import SinkContext
from crawler.sinks.archive import Archive
from frontier.settle import LeasedUrl
from tests.throttled_sink import ThrottledSink


class SlowArchive(ThrottledSink):
    """Named in `archive.sinks`."""

    def __init__(self, context: SinkContext) -> None:
        super().__init__(context)
        write, wait = Archive.write, super().write

        async def write_slowly(
            archive: Archive,
            pages: Sequence[Page],
            exchanges: Sequence[Exchange] = (),
            leased: Sequence[LeasedUrl] = (),
        ) -> Written:
            written = await write(archive, pages, exchanges, leased)
            await wait(pages, exchanges)
            return written

        Archive.write = write_slowly  # type: ignore[method-assign]

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        return frozenset()
