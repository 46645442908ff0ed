"""The archive: a sink that writes groups of pages to volumes.

One thread does its work, in the order of the calls. Only the records of ordinary pages are made in the event loop, in
slices: in a thread, they cost 9 % more of a page's CPU (docs/explanation/speed.md), because compression and digests
release the interpreter lock and then compete for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from crawler.events import Events
from crawler.hooks import PageHooks
from crawler.logs import log
from crawler.page import Exchange, Page, Written
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.external_sort import SortedLines
from crawler.sinks.group_encoder import EncodedGroup, GroupEncoder
from crawler.sinks.journal import JOURNAL
from crawler.sinks.postprocess import PostProcessor
from crawler.sinks.recovery import OrphanedVolume, adopt_orphan, find_orphans, finish_orphans, unsettled_in
from crawler.sinks.segment import LINES, Segment, file_name, open_path, sync_folder, translated
from crawler.sinks.sink import MayRepeat, Revoke, SettleLater
from crawler.sinks.time_formats import digits
from crawler.sinks.volume import Volume
from frontier.errors import RedisAway, RedisMisused
from frontier.settle import LeasedUrl

T = TypeVar("T")

SLICE_S = 0.004
"""Seconds for which records are made before other tasks get their turn."""

NOTED_S = 1.0
"""Seconds after which the journal says that the last group is settled, unless another one says so by following it."""


class Archive:
    """The sink that writes WARC files and JSON lines.

    A cancelled `write` is carried out completely or not at all. All methods raise UserError if the folder cannot be
    written for another reason than missing space.
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
        self._post_processor = PostProcessor(settings)
        self._wall = wall
        self._encoder = GroupEncoder(settings, self._hooks)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self._order = asyncio.Lock()
        self._jobs: set[Future[Any]] = set()  # that the thread has not finished
        self._volume: Volume | None = None
        self._aside: list[Volume] = []  # whose last groups are settled later
        self._serial = 0
        self._may_repeat: MayRepeat = lambda url: False
        self._in_doubt = False  # whether the last group may be unsettled
        self._noting: asyncio.TimerHandle | None = None
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<Archive {self._settings.folder} volumes={self._serial} {self._volume}>"

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        """Create the folder and finish the files of dead writers in it. Without `revoke`, all their pages count as settled.
        If it cannot answer now, the files in question are left to a later start. `may_repeat`: see `DurableSink.start`."""
        self._may_repeat = may_repeat or self._may_repeat
        orphans = await self._in_thread(self._find_orphans)
        try:
            unsettled = [await self._unsettled(orphan, revoke) for orphan in orphans]
            await self._in_thread(lambda: self._recover(orphans, unsettled))
        finally:
            for orphan in orphans:
                orphan.journal.close()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """See `DurableSink.write`. A page that will be retried gets records for its exchange, but no line."""
        now = self._wall()
        try:
            async with self._order:
                group = await self._write(now, pages, exchanges, leased)
        finally:
            for failed in self._hooks.take_failures():
                self._events.emit(failed)
        for found in group.defects:
            self._events.emit(found)
        return Written(group.duplicates)

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `DurableSink.settled`."""
        if unsettled:
            await self._in_thread(lambda: self._take_back(unsettled))
        self._in_doubt = False
        self._cancel_noting()
        self._noting = asyncio.get_running_loop().call_later(NOTED_S, self._note_soon)

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        """See `DurableSink.take_back`. The volume is finished afterwards, with a new index."""
        await self._in_thread(lambda: self._take_back_urls(urls))

    async def set_aside(self) -> SettleLater:
        """See `DurableSink.set_aside`. The volume that ends with the group is set aside, and the next group begins another
        one."""
        volume = await self._in_thread(self._set_aside)

        async def settled(unsettled: Collection[int]) -> None:
            if volume is not None:
                await self._in_thread(lambda: self._finish_aside(volume, unsettled))

        return settled

    async def stop(self, is_in_doubt: bool = False) -> int:
        """See `DurableSink.stop`. If the last group may be unsettled, its files stay open, too."""
        self._in_doubt |= is_in_doubt
        self._cancel_noting()
        try:
            await self._in_thread(self._end)
        finally:
            self._thread.shutdown()
            left = await self._post_processor.stop()
        return left

    async def _in_thread(self, work: Callable[[], T]) -> T:
        def translated_work() -> T:
            with translated(self._settings.folder):
                return work()

        return await asyncio.wrap_future(self._submit(translated_work))

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        job = self._thread.submit(work)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        return job

    def _cancel_noting(self) -> None:
        if self._noting is not None:
            self._noting.cancel()

    def _note_soon(self) -> None:
        self._submit(self._note_settled)

    def _note_settled(self) -> None:
        """Write to the journal that the last group is settled. If another one is being written, that says so."""
        if self._volume is None or self._in_doubt:
            return
        with contextlib.suppress(OSError):  # the next group says the same, and raises this error if it lasts
            self._volume.note_settled()

    def _volume_at_hand(self, now: float) -> Volume | None:
        """The volume for the next group, unless the thread has work to do first."""
        return None if self._jobs or self._volume is None or self._is_due(self._volume, now) else self._volume

    def _find_orphans(self) -> list[OrphanedVolume]:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        return find_orphans(self._settings.folder)

    @staticmethod
    async def _unsettled(orphan: OrphanedVolume, revoke: Revoke | None) -> Collection[int] | None:
        """The indexes of the pages in doubt that were not settled. None if this cannot be found out now."""
        try:
            return await unsettled_in(orphan, revoke)
        except (RedisAway, RedisMisused) as error:
            log(logging.WARNING, "recovery_put_off", volume=orphan.name, error=error)
            return None

    def _recover(self, orphans: Sequence[OrphanedVolume], unsettled: Sequence[Collection[int] | None]) -> None:
        judged = [(orphan, numbers) for orphan, numbers in zip(orphans, unsettled, strict=True) if numbers is not None]
        finish_orphans(self._settings.folder, judged, self._settings.index)
        self._post_processor.catch_up()

    async def _write(
        self, now: float, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> EncodedGroup:
        volume = self._volume_at_hand(now)
        if volume is not None and self._encoder.is_ordinary(pages, exchanges):
            group = await _in_slices(self._encoder.make(volume, pages, exchanges, leased))
            await self._in_thread(lambda: self._append(volume, group))
            return group

        def make_and_append() -> EncodedGroup:
            volume = self._current_volume(now)
            group = _in_one_go(self._encoder.make(volume, pages, exchanges, leased))
            self._append(volume, group)
            return group

        return await self._in_thread(make_and_append)

    def _append(self, volume: Volume, group: EncodedGroup) -> None:
        with self._encoder.undone_if_it_fails():
            try:
                volume.append(group.records, group.lines, group.index, group.doubt, time.monotonic())
            finally:
                if volume.is_broken:
                    self._volume = None
        self._in_doubt = group.doubt is not None
        self.written_bytes += len(group.records) + len(group.lines)

    def _take_back(self, unsettled: Collection[int]) -> None:
        volume = self._volume
        if volume is None or volume.doubt is None:
            return
        self._encoder.forget({volume.doubt.shares[number].leased.entry.url for number in unsettled})
        try:
            volume.take_back(unsettled)
        finally:
            if volume.is_broken:
                self._volume = None

    def _take_back_urls(self, urls: Sequence[LeasedUrl]) -> None:
        volume, in_doubt = self._volume, self._in_doubt
        if volume is None:
            return
        try:
            removed = volume.take_back_urls(urls)
        finally:
            if volume.is_broken:
                self._volume, self._in_doubt = None, False
        if removed:
            log(logging.INFO, "pages_taken_back", volume=volume.journal.path.name, pages=removed)
            self._encoder.forget({one.entry.url for one in urls})
            if not in_doubt and (orphan := adopt_orphan(open_path(volume.journal.path))):
                with contextlib.closing(orphan.journal):
                    finish_orphans(self._settings.folder, [(orphan, ())], self._settings.index)
                self._post_processor.catch_up()

    def _set_aside(self) -> Volume | None:
        volume = self._volume
        if volume is None or not self._in_doubt:
            return None
        self._encoder.forget_last()
        self._volume, self._in_doubt = None, False
        self._aside.append(volume)
        return volume

    def _finish_aside(self, volume: Volume, unsettled: Collection[int]) -> None:
        if unsettled and not volume.is_broken:
            volume.take_back(unsettled)
        self._aside.remove(volume)
        if not volume.is_broken:
            self._take(volume)

    def _current_volume(self, now: float) -> Volume:
        if self._volume is not None and self._is_due(self._volume, now):
            self._finish()
        if self._volume is None:
            self._volume = self._new_volume(now)
        return self._volume

    def _is_due(self, volume: Volume, now: float) -> bool:
        return volume.is_due(self._settings.max_bytes, now - self._settings.max_age_s)

    def _new_volume(self, now: float) -> Volume:
        self._serial += 1
        name = volume_name(self._settings, now, self._serial)
        folder = self._settings.folder
        journal, index = Segment.create(folder / (name + JOURNAL)), SortedLines(folder)
        volume = Volume(now, self._settings.fsync, journal, index, may_repeat=self._may_repeat)
        try:
            if self._settings.warc:
                warc = folder / (name + COMPRESSIONS[self._settings.compression].suffix)
                volume.add_warc(Segment.create(warc), self._encoder.records.warcinfo(warc.name, now))
            if self._settings.pages:
                volume.add_pages(Segment.create(folder / (name + LINES)))
            if self._settings.fsync:
                sync_folder(folder)
        except BaseException:
            volume.discard()
            raise
        return volume

    def _end(self) -> None:
        for volume in self._aside:
            volume.leave()
        if not self._in_doubt:
            self._finish()
        elif self._volume is not None:
            self._volume.leave()

    def _finish(self) -> None:
        volume, self._volume = self._volume, None
        if volume is not None:
            self._take(volume)

    def _take(self, volume: Volume) -> None:
        files = volume.finish()
        if self._settings.fsync:
            sync_folder(self._settings.folder)
        self._post_processor.take(files)


async def _in_slices(making: Generator[None, None, EncodedGroup]) -> EncodedGroup:
    """Make a group in the event loop, some milliseconds at a time. If cancelled, nothing of it is remembered."""
    with contextlib.closing(making):
        until = time.monotonic() + SLICE_S
        while (group := _step(making)) is None:
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_S
    return group


def _in_one_go(making: Generator[None, None, EncodedGroup]) -> EncodedGroup:
    while (group := _step(making)) is None:
        pass
    return group


def _step(making: Generator[None, None, EncodedGroup]) -> EncodedGroup | None:
    """The group, once it is made."""
    try:
        return next(making)
    except StopIteration as made:
        return made.value  # type: ignore[no-any-return]


def volume_name(settings: ArchiveSettings, now: float, serial: int) -> str:
    """The common part of the file names of a volume."""
    return file_name(f"{settings.crawl}-{settings.replica}-{digits(now)}-{serial:05d}")
