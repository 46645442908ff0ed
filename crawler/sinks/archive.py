"""The archive: a sink that writes groups of pages to volumes, in one worker thread."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from crawler.hooks import KEEP, PageHooks
from crawler.logs import tell
from crawler.page import Exchange, Outcome, Page
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.content import NOTHING, Content, content_of
from crawler.sinks.finished import Finished
from crawler.sinks.index import Indexed
from crawler.sinks.likeness import Likeness
from crawler.sinks.pages import PageLines, Place, Row
from crawler.sinks.recovery import Wreck, find_wrecks, recover
from crawler.sinks.segment import LINES, Segment, sync_folder, translated
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.tail import TAIL, Share, Tail
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, sha1
from frontier.errors import RedisAway, RedisMisused
from frontier.queue import LeasedUrl

T = TypeVar("T")

Disown = Callable[[Sequence[LeasedUrl], str], Awaitable[Sequence[bool]]]
"""For each URL, of the crawl of that name, whether it was not settled under its lease. Raises RedisAway."""


class Sink(Protocol):
    """Where settled pages go."""

    @property
    def written_bytes(self) -> int:
        """Octets made durable since the start."""

    async def start(self) -> None:
        """Make ready for `write`."""

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        """Return when the records of `pages`, and of further `exchanges` (robots.txt), are durable: the URLs of the pages
        whose body was kept before, so that it was not kept again.

        Raises SinkFull when there is no room for them: then none of them is kept, and the same call may be made again.
        """

    async def stop(self) -> None:
        """Finish the files. Nothing can be written afterwards."""


class Keeper(Sink, Protocol):
    """The sink that a replica commits to: it takes pages back that turn out not to be settled."""

    async def start(self, disown: Disown | None = None) -> None:
        """Make ready for `write`. `disown` answers which of the pages that dead replicas wrote last were not settled."""

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


@dataclass(frozen=True, slots=True)
class _Group:
    """What a group adds to the files of the volume, and the URLs whose body was there before."""

    octets: bytes
    index: list[bytes]
    lines: bytes
    duplicates: frozenset[str]
    shares: list[Share]


class _Tape:
    """The records of a group as they will stand in the file `warc`, and the lines for its index."""

    def __init__(self, warc: Segment | None, with_index: bool) -> None:
        self.octets: list[bytes] = []
        self.index: list[bytes] = []
        self._name = warc.path.name if warc else ""
        self.at = warc.size if warc else 0
        self._with_index = with_index

    def append(self, *records: bytes) -> None:
        self.octets += records
        self.at += sum(map(len, records))

    def add(self, exchange: Exchange, made: ExchangeRecords) -> Place:
        """Append the records `made` of `exchange`; returns where the response stands."""
        self.append(made.request, made.response)
        place = Place(self._name, self.at - len(made.response), len(made.response))
        if self._with_index:
            indexed = Indexed.of_exchange(exchange, made.digest, made.is_revisit)
            self.index.append(indexed.line(place.file, place.offset, place.length))
        return place


class Archive:
    """The sink that writes WARC files and JSON lines.

    All work is done in the order of the calls, in one thread. A cancelled `write` is carried out whole, or not at all.
    Raises UserError for whatever keeps the folder from being written, except a lack of room.
    """

    def __init__(
        self, settings: ArchiveSettings, wall: Callable[[], float] = time.time, hooks: PageHooks | None = None
    ) -> None:
        self._settings = settings
        self._hooks = hooks or PageHooks()
        self._finished = Finished(settings)
        self._wall = wall
        self._records = WarcRecords(settings)
        self._lines = PageLines(settings)
        self._likeness = Likeness(
            settings.near_duplicates, settings.soft_404, settings.near_remembered, simhash=settings.simhash
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._volume: Volume | None = None
        self._serial = 0
        self._in_doubt = False  # whether the last group has been settled
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<Archive {self._settings.folder} volumes={self._serial} {self._volume}>"

    async def start(self, disown: Disown | None = None) -> None:
        """Make the folder and finish the files of dead writers in it. Without `disown` all their pages count as settled; if
        it cannot answer now, the files in question are left to a later start."""
        wrecks = await self._in_thread(self._begin)
        try:
            unsettled = [await self._unsettled(wreck, disown) for wreck in wrecks]
            await self._in_thread(lambda: self._recover(wrecks, unsettled))
        finally:
            for wreck in wrecks:
                wreck.close()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> frozenset[str]:
        """See `Keeper.write`. A page that will be retried leaves its exchange, but no line."""
        try:
            return await self._in_thread(lambda: self._write(pages, exchanges, leased))
        finally:
            self._hooks.report()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `Keeper.settled`."""
        if unsettled:
            await self._in_thread(lambda: self._take_back(unsettled))
        self._in_doubt = False

    async def stop(self) -> None:
        """See `Sink.stop`. Files whose last group may not be settled are left open, to the next start in the folder."""
        try:
            await self._in_thread(self._end)
        finally:
            self._thread.shutdown()
            await self._finished.stop()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated_work() -> T:
            with translated(self._settings.folder):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, translated_work)

    def _begin(self) -> list[Wreck]:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        return find_wrecks(self._settings.folder)

    @staticmethod
    async def _unsettled(wreck: Wreck, disown: Disown | None) -> Collection[int] | None:
        """The numbers of the pages in doubt that were not settled; None if that cannot be found out now."""
        if not wreck.doubt or disown is None:
            return ()
        try:
            answers = await disown(wreck.doubt.leased, wreck.doubt.crawl)
        except (RedisAway, RedisMisused) as error:
            tell(logging.WARNING, "recovery_put_off", volume=wreck.name, error=error)
            return None
        return {number for number, unsettled in enumerate(answers) if unsettled}

    def _recover(self, wrecks: Sequence[Wreck], unsettled: Sequence[Collection[int] | None]) -> None:
        judged = [(wreck, numbers) for wreck, numbers in zip(wrecks, unsettled, strict=True) if numbers is not None]
        for wreck, numbers in judged:
            if numbers:
                wreck.take_back(numbers)
                tell(logging.INFO, "pages_taken_back", volume=wreck.name, pages=len(numbers))
        recover(self._settings.folder, with_index=self._settings.index, ours={wreck.name for wreck, _ in judged})
        for wreck, _ in judged:
            wreck.remove()
        self._finished.catch_up()

    def _write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> frozenset[str]:
        self._records.settle()  # the group before has been, by now
        volume = self._current_volume()
        try:
            group = self._group(volume, pages, exchanges, leased)
            volume.append(group.octets, group.lines, group.index, self._doubt(volume, group.shares))
        except BaseException:
            self._records.undo()
            self._likeness.undo()
            if volume.is_broken:
                self._volume = None
            raise
        self._in_doubt = bool(leased)
        self._likeness.settle()
        self.written_bytes += len(group.octets) + len(group.lines)
        return group.duplicates

    def _doubt(self, volume: Volume, shares: list[Share]) -> Tail | None:
        if not shares:
            return None
        records, lines = volume.warc, volume.pages
        return Tail(self._settings.crawl, records.size if records else 0, lines.size if lines else 0, shares)

    def _take_back(self, unsettled: Collection[int]) -> None:
        volume = self._volume
        if volume is None or volume.doubt is None:
            return
        self._records.forget({volume.doubt.shares[number].leased.entry.url for number in unsettled})
        try:
            volume.take_back(unsettled)
        finally:
            if volume.is_broken:
                self._volume = None

    def _group(
        self, volume: Volume, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> _Group:
        tape = _Tape(volume.warc, with_index=self._settings.index)
        rows: list[Row] = []
        duplicates: set[str] = set()
        shares: list[Share] = []
        for number, page in enumerate(pages):
            start = tape.at
            is_settled = page.outcome is not Outcome.RETRY
            answer = self._hooks.ask(page) if is_settled else KEEP
            content = self._content(page) if is_settled else NOTHING
            digest, place = page.digest, None
            if (
                volume.warc
                and page.exchange
                and answer.keeps_body
                and not content.is_dropped
                and not (page.noarchive and self._settings.noarchive)
            ):
                made = self._records.exchange(page.exchange, digest)
                digest, place = made.digest, tape.add(page.exchange, made)
                if is_settled and self._settings.metadata:
                    tape.append(self._records.metadata(page, made))
                if is_settled and made.is_revisit:
                    duplicates.add(page.url)
            elif page.exchange and not digest:
                digest = sha1(page.exchange.body)
            if is_settled:
                rows.append(Row(page, digest, place, answer.extra, content))
            if leased:
                shares.append(Share(leased[number], start, tape.at, len(rows) - 1 if is_settled else -1))
        for exchange in exchanges if volume.warc else ():
            tape.add(exchange, self._records.exchange(exchange))
        lines = self._lines.encode(rows) if volume.pages else b""
        return _Group(b"".join(tape.octets), tape.index, lines, frozenset(duplicates), shares)

    def _content(self, page: Page) -> Content:
        settings = self._settings
        content = content_of(
            page, settings.text, settings.structured, settings.judges, error_pages=settings.soft_404 != "off"
        )
        return self._likeness.judge(page, content) if content.is_judged else content

    def _current_volume(self) -> Volume:
        now = self._wall()
        if self._volume is not None and self._volume.is_due(self._settings.max_bytes, now - self._settings.max_age_s):
            self._finish()
        if self._volume is None:
            self._volume = self._new_volume(now)
        return self._volume

    def _new_volume(self, now: float) -> Volume:
        self._serial += 1
        name = volume_name(self._settings, now, self._serial)
        folder = self._settings.folder
        volume = Volume(now, self._settings.fsync, Segment.create(folder / (name + TAIL)))
        try:
            if self._settings.warc:
                volume.warc = Segment.create(folder / (name + COMPRESSIONS[self._settings.compression].suffix))
                volume.warc.begin(self._records.warcinfo(volume.warc.path.name, now))
            if self._settings.pages:
                volume.pages = Segment.create(folder / (name + LINES))
            if self._settings.fsync:
                sync_folder(folder)
        except BaseException:
            volume.discard()
            raise
        return volume

    def _end(self) -> None:
        if not self._in_doubt:
            self._finish()
        elif self._volume is not None:
            self._volume.leave()

    def _finish(self) -> None:
        volume, self._volume = self._volume, None
        if volume is not None:
            files = volume.finish()
            if self._settings.fsync:
                sync_folder(self._settings.folder)
            self._finished.take(files)


def volume_name(settings: ArchiveSettings, now: float, serial: int) -> str:
    """The name that the files of a volume share, safe in any file system."""
    time_text = datetime.fromtimestamp(now, UTC).strftime("%Y%m%d%H%M%S")
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{settings.crawl}-{settings.replica}-{time_text}-{serial:05d}")
