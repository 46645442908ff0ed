"""The archive: a sink that writes groups of pages to volumes, in one worker thread."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from crawler.hooks import KEEP, PageHooks
from crawler.page import Exchange, Outcome, Page
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.content import NOTHING, Content, content_of
from crawler.sinks.finished import Finished
from crawler.sinks.index import Indexed
from crawler.sinks.likeness import Likeness
from crawler.sinks.pages import PageLines, Place, Row
from crawler.sinks.recovery import recover
from crawler.sinks.segment import Segment, sync_folder, translated
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, sha1

T = TypeVar("T")


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


@dataclass(frozen=True, slots=True)
class _Group:
    """What a group adds to the files of the volume, and the URLs whose body was there before."""

    octets: bytes
    index: list[bytes]
    lines: bytes
    duplicates: frozenset[str]


class _Tape:
    """The records of a group as they will stand in the file `warc`, and the lines for its index."""

    def __init__(self, warc: Segment | None, with_index: bool) -> None:
        self.octets: list[bytes] = []
        self.index: list[bytes] = []
        self._name = warc.path.name if warc else ""
        self._at = warc.size if warc else 0
        self._counted = 0
        self._with_index = with_index

    def add(self, exchange: Exchange, made: ExchangeRecords) -> Place:
        """Append the records `made` of `exchange`; returns where the response stands."""
        self.octets += (made.request, made.response)
        self._at += sum(map(len, self.octets[self._counted :]))
        self._counted = len(self.octets)
        place = Place(self._name, self._at - len(made.response), len(made.response))
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
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<Archive {self._settings.folder} volumes={self._serial} {self._volume}>"

    async def start(self) -> None:
        """Make the folder and finish the files of dead writers in it."""
        await self._in_thread(self._start)

    async def write(self, pages: Sequence[Page], exchanges: Sequence[Exchange] = ()) -> frozenset[str]:
        """See `Sink.write`. A page that will be retried leaves its exchange, but no line."""
        try:
            return await self._in_thread(lambda: self._write(pages, exchanges))
        finally:
            self._hooks.report()

    async def stop(self) -> None:
        try:
            await self._in_thread(self._finish)
        finally:
            self._thread.shutdown()
            await self._finished.stop()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated_work() -> T:
            with translated(self._settings.folder):
                return work()

        return await asyncio.get_running_loop().run_in_executor(self._thread, translated_work)

    def _start(self) -> None:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        recover(self._settings.folder, with_index=self._settings.index)
        self._finished.catch_up()

    def _write(self, pages: Sequence[Page], exchanges: Sequence[Exchange]) -> frozenset[str]:
        volume = self._current_volume()
        try:
            group = self._group(volume, pages, exchanges)
            volume.append(group.octets, group.lines, group.index)
        except BaseException:
            self._records.undo()
            self._likeness.undo()
            if volume.is_broken:
                self._volume = None
            raise
        self._records.settle()
        self._likeness.settle()
        self.written_bytes += len(group.octets) + len(group.lines)
        return group.duplicates

    def _group(self, volume: Volume, pages: Sequence[Page], exchanges: Sequence[Exchange]) -> _Group:
        tape = _Tape(volume.warc, with_index=self._settings.index)
        rows: list[Row] = []
        duplicates: set[str] = set()
        for page in pages:
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
                    tape.octets.append(self._records.metadata(page, made))
                if is_settled and made.is_revisit:
                    duplicates.add(page.url)
            elif page.exchange and not digest:
                digest = sha1(page.exchange.body)
            if is_settled:
                rows.append(Row(page, digest, place, answer.extra, content))
        for exchange in exchanges if volume.warc else ():
            tape.add(exchange, self._records.exchange(exchange))
        lines = self._lines.encode(rows) if volume.pages else b""
        return _Group(b"".join(tape.octets), tape.index, lines, frozenset(duplicates))

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
        volume = Volume(opened_at=now, fsync=self._settings.fsync)
        try:
            if self._settings.warc:
                volume.warc = Segment.create(folder / (name + COMPRESSIONS[self._settings.compression].suffix))
                volume.warc.begin(self._records.warcinfo(volume.warc.path.name, now))
            if self._settings.pages:
                volume.pages = Segment.create(folder / f"{name}.pages.jsonl")
            if self._settings.fsync:
                sync_folder(folder)
        except BaseException:
            volume.discard()
            raise
        return volume

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
