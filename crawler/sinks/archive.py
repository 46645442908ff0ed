"""The archive: a sink that writes groups of pages to volumes.

What waits for the disk does so in one worker thread. The records of ordinary pages are made in the event loop all the same,
some milliseconds at a time: what the pages hold is in the cache of that core, and the loop waits for each lock that another
thread takes. In a thread, as for pages of megabytes and groups with hooks, it costs a crawl a seventh more CPU.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, cast

from crawler.events import Events
from crawler.hooks import PageHooks
from crawler.logs import log
from crawler.page import Exchange, Page, Written
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.external_sort import SortedLines
from crawler.sinks.group import Group, Groups
from crawler.sinks.journal import JOURNAL
from crawler.sinks.postprocess import Finished
from crawler.sinks.recovery import OrphanedVolume, find_orphans, recover
from crawler.sinks.segment import LINES, Segment, sync_folder, translated
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.sink import Revoke
from crawler.sinks.times import digits
from crawler.sinks.volume import Volume
from frontier.errors import RedisAway, RedisMisused
from frontier.queue import LeasedUrl

T = TypeVar("T")


class Archive:
    """The sink that writes WARC files and JSON lines.

    All is done in the order of the calls. A cancelled `write` is carried out whole, or not at all.
    Raises UserError for whatever keeps the folder from being written, except a lack of room.
    """

    def __init__(
        self,
        settings: ArchiveSettings,
        wall: Callable[[], float] = time.time,
        hooks: PageHooks | None = None,
        events: Events | None = None,
    ) -> None:
        self._settings = settings
        self._events = events or Events()
        self._hooks = hooks or PageHooks()
        self._finished = Finished(settings)
        self._wall = wall
        self._groups = Groups(settings, self._hooks)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._jobs: set[Future[Any]] = set()  # that the thread has still to do
        self._order = asyncio.Lock()
        self._volume: Volume | None = None
        self._serial = 0
        self._in_doubt = False  # whether the last group has been settled
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<Archive {self._settings.folder} volumes={self._serial} {self._volume}>"

    async def start(self, revoke: Revoke | None = None) -> None:
        """Make the folder and finish the files of dead writers in it. Without `revoke` all their pages count as settled; if
        it cannot answer now, the files in question are left to a later start."""
        orphans = await self._in_thread(self._find_orphans)
        try:
            unsettled = [await self._unsettled(orphan, revoke) for orphan in orphans]
            await self._in_thread(lambda: self._recover(orphans, unsettled))
        finally:
            for orphan in orphans:
                orphan.close()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """See `DurableSink.write`. A page that will be retried leaves its exchange, but no line."""
        async with self._order:
            now = self._wall()
            try:
                if not self._groups.are_quick:
                    group = await self._in_thread(lambda: self._write(now, pages, exchanges, leased))
                    return self._reported(group)
                volume = self._volume_at_hand(now)
                if volume is None:
                    volume = await self._in_thread(lambda: self._current_volume(now))
                with self._groups.attempt():
                    group = await self._make_in_slices(self._groups.make(volume, pages, exchanges, leased))
                    await self._in_thread(lambda: self._append(volume, group))
                return self._reported(group)
            finally:
                for failed in self._hooks.take_failures():
                    self._events.emit(failed)

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `DurableSink.settled`."""
        if unsettled:
            await self._in_thread(lambda: self._take_back(unsettled))
        self._in_doubt = False

    async def stop(self) -> None:
        """See `Sink.stop`. Files whose last group may not be settled are left open, to the next start in the folder."""
        try:
            await self._in_thread(self._end)
        finally:
            self._thread.shutdown()
            self._groups.stop()
            await self._finished.stop()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated_work() -> T:
            with translated(self._settings.folder):
                return work()

        job = self._thread.submit(translated_work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return await asyncio.wrap_future(job)

    async def _make_in_slices(self, making: Generator[bool, None, Group]) -> Group:
        """What `making` returns. Its short steps are done here, its long ones in the thread."""
        step = _next_slice(making)
        while not isinstance(step, Group):
            await asyncio.sleep(0)
            step = await self._run_shielded(lambda: _next_slice(making)) if step else _next_slice(making)
        return step

    async def _run_shielded(self, work: Callable[[], T]) -> T:
        """The result of `work`, done in the thread. Who is cancelled waits for it all the same, and undoes it then."""
        job = asyncio.ensure_future(self._in_thread(work))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.wait([job])
            raise

    def _find_orphans(self) -> list[OrphanedVolume]:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        return find_orphans(self._settings.folder)

    @staticmethod
    async def _unsettled(orphan: OrphanedVolume, revoke: Revoke | None) -> Collection[int] | None:
        """The numbers of the pages in doubt that were not settled; None if that cannot be found out now."""
        if not orphan.doubt or revoke is None:
            return ()
        try:
            answers = await revoke(orphan.doubt.leased, orphan.doubt.crawl)
        except (RedisAway, RedisMisused) as error:
            log(logging.WARNING, "recovery_put_off", volume=orphan.name, error=error)
            return None
        return {number for number, unsettled in enumerate(answers) if unsettled}

    def _recover(self, orphans: Sequence[OrphanedVolume], unsettled: Sequence[Collection[int] | None]) -> None:
        judged = [(orphan, numbers) for orphan, numbers in zip(orphans, unsettled, strict=True) if numbers is not None]
        for orphan, numbers in judged:
            if numbers:
                orphan.take_back(numbers)
                log(logging.INFO, "pages_taken_back", volume=orphan.name, pages=len(numbers))
        recover(self._settings.folder, with_index=self._settings.index, ours={orphan.name for orphan, _ in judged})
        for orphan, _ in judged:
            orphan.remove()
        self._finished.catch_up()

    def _write(
        self, now: float, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> Group:
        with self._groups.attempt():
            volume = self._current_volume(now)
            group = _make_whole(self._groups.make(volume, pages, exchanges, leased))
            self._append(volume, group)
        return group

    def _reported(self, group: Group) -> Written:
        for found in group.defects:
            self._events.emit(found)
        return Written(group.duplicates)

    def _append(self, volume: Volume, group: Group) -> None:
        try:
            volume.append(group.records, group.lines, group.index, group.doubt)
        finally:
            if volume.is_broken:
                self._volume = None
        self._in_doubt = group.doubt is not None
        self.written_bytes += len(group.records) + len(group.lines)

    def _take_back(self, unsettled: Collection[int]) -> None:
        volume = self._volume
        if volume is None or volume.doubt is None:
            return
        self._groups.forget({volume.doubt.shares[number].leased.entry.url for number in unsettled})
        try:
            volume.take_back(unsettled)
        finally:
            if volume.is_broken:
                self._volume = None

    def _volume_at_hand(self, now: float) -> Volume | None:
        """The volume that the next group goes to, if there is nothing to be done or waited for before."""
        return None if self._jobs or self._volume is None or self._is_due(self._volume, now) else self._volume

    def _is_due(self, volume: Volume, now: float) -> bool:
        return volume.is_due(self._settings.max_bytes, now - self._settings.max_age_s)

    def _current_volume(self, now: float) -> Volume:
        if self._volume is not None and self._is_due(self._volume, now):
            self._finish()
        if self._volume is None:
            self._volume = self._new_volume(now)
        return self._volume

    def _new_volume(self, now: float) -> Volume:
        self._serial += 1
        name = volume_name(self._settings, now, self._serial)
        folder = self._settings.folder
        volume = Volume(now, self._settings.fsync, Segment.create(folder / (name + JOURNAL)), SortedLines(folder))
        try:
            if self._settings.warc:
                warc = folder / (name + COMPRESSIONS[self._settings.compression].suffix)
                volume.add_warc(Segment.create(warc), self._groups.warcinfo(warc.name, now))
            if self._settings.pages:
                volume.add_pages(Segment.create(folder / (name + LINES)))
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


def _make_whole(making: Generator[bool, None, Group]) -> Group:
    while not isinstance(step := _next_slice(making), Group):
        pass
    return step


def _next_slice(making: Generator[bool, None, Group]) -> bool | Group:
    """What `making` yields next, or in the end returns."""
    try:
        return next(making)
    except StopIteration as made:
        return cast(Group, made.value)


def volume_name(settings: ArchiveSettings, now: float, serial: int) -> str:
    """The name that the files of a volume share, safe in any file system."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", f"{settings.crawl}-{settings.replica}-{digits(now)}-{serial:05d}")
