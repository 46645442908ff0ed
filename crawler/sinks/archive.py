"""The archive: a sink that writes groups of pages to volumes.

All that waits for the disk happens in one thread, in the order of the calls. The records of ordinary pages are made in the
event loop, in slices: in a thread, they cost 9 % more of a page's CPU (docs/explanation/speed.md), because compression and
digests release the interpreter lock and then compete for it. Those of expensive pages are made in the thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http import HTTPStatus
from typing import TypeVar

import msgspec

from crawler.defects import Stage, defect
from crawler.errors import SinkFull, is_machines_fault
from crawler.events import DefectFound, Events
from crawler.hooks import KEEP, PageHooks
from crawler.logs import log
from crawler.page import NO_CONTENT, UNREADABLE, Content, Exchange, LooseExchange, Outcome, Page, Written
from crawler.parse.text import has_content
from crawler.scope.next_visit import without_validator
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.cdxj import Indexed, digits
from crawler.sinks.compression import COMPRESSIONS
from crawler.sinks.files import LINES, Segment, check_locks, file_name, open_path, sync_folder, translated
from crawler.sinks.journal import JOURNAL, JournalEntry, Share
from crawler.sinks.lines import PageLines, Place, Row
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.recovery import adopt_orphan, find_orphans, finish_orphans, unsettled_in
from crawler.sinks.sink import MayRepeat, Revoke, SettleLater
from crawler.sinks.upload import PostProcessor
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, page_fields, resource_type, sha1
from frontier.errors import RedisAway, RedisMisused
from frontier.settle import LeasedUrl

T = TypeVar("T")

SLICE_S = 0.004
"""Seconds for which records are made before other tasks get their turn."""

MARKED_S = 1.0
"""Seconds after which the journal says that the last group is settled, unless another one says so by following it."""

LARGE_BODY = LARGE_LINKS = 1 << 20
"""A page with a larger body, or longer links in all, is too much work for the event loop: more than 5 ms."""

FEW_LINKS = 512
"""So many links are shorter than `LARGE_LINKS`."""


class Group:
    """The records, index lines and JSON lines to append to the files of `volume`. `duplicates`: URLs whose body was already
    archived; a 304 has none. `bodiless`: as in `Written`. `shares`: what belongs to each leased page. `defects`:
    exceptions, each of which costs a page a part of its records."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.records: list[bytes] = []
        self.index: list[bytes] = []
        self.lines: list[bytes] = []
        self.duplicates: set[str] = set()
        self.bodiless: dict[str, str] = {}
        self.shares: list[Share] = []
        self.defects: list[DefectFound] = []
        self.start = self.end = volume.warc.size if volume.warc else 0

    def append(self, *records: bytes) -> None:
        self.records += records
        self.end += sum(map(len, records))

    def report(self, stage: Stage, url: str, error: Exception) -> None:
        """Report `error`. Raises SinkFull if this machine lacks something to make the group, which can be made later."""
        if is_machines_fault(error):
            raise SinkFull(f"cannot make records now: {error}") from error
        self.defects.append(defect(stage, url, error))

    def journal_entry(self, crawl: str) -> JournalEntry | None:
        """The group as the journal has it, None if nothing of it was leased."""
        lines_at = self.volume.pages.size if self.volume.pages else 0
        return JournalEntry(crawl, self.start, lines_at, self.shares) if self.shares else None


class GroupEncoder:
    """Makes the groups of one replica, and remembers what later ones may refer to. `is_written`: the last group, too."""

    def __init__(self, settings: ArchiveSettings, hooks: PageHooks) -> None:
        self._settings = settings
        self._hooks = hooks
        self.records = WarcRecords(settings)
        self.is_written = False
        self._wanted = settings.content
        self._lines = PageLines(settings.links, settings.replica)
        self._likeness = Likeness(
            settings.near_duplicates, settings.soft_404, settings.near_remembered, simhash=settings.simhash
        )

    def begin(self, volume: Volume) -> Group:
        """Begin a group for `volume`. The group before it is settled by now, or must not be referred to."""
        if self.is_written:
            self.records.confirm()
            self._likeness.confirm()
        else:
            self.records.undo()
            self._likeness.undo()
        self.is_written = False
        return Group(volume)

    def is_expensive(self, page: Page) -> bool:
        """Whether the records of `page` may take more than some milliseconds, or call code of users."""
        has_long_links = len(page.links) > FEW_LINKS and sum(len(link.url) for link in page.links) > LARGE_LINKS
        is_large = page.exchange is not None and page.received_bytes > LARGE_BODY
        is_at_hand = page.content is not None and not page.content.is_judged
        needs_content = bool(self._wanted) and not is_at_hand and has_content(page, self._wanted.error_pages)
        return bool(self._hooks) or needs_content or is_large or has_long_links

    def add_page(self, group: Group, page: Page, leased: LeasedUrl | None) -> None:
        """Add `page`, which was fetched under the lease `leased`. If it will be retried, it gets no line."""
        start, volume = group.end, group.volume
        is_settled = page.outcome is not Outcome.RETRY
        is_page = is_settled and not page.is_requisite
        answer = self._hooks.ask(page) if is_page else KEEP
        content = self._content(group, page) if is_page else NO_CONTENT
        is_barred = page.is_withheld or (page.noarchive and self._settings.noarchive)
        digest, place, line = page.digest, None, -1
        if volume.warc and page.exchange and answer.keeps_body and not content.is_dropped and not is_barred:
            try:
                page_id = self.records.page_id() if page.extras or page.rendered else ""
                kind = resource_type(page) if page.is_requisite else ""
                made = self.records.exchange(page.exchange, digest, page.body_at, page_fields(page_id, kind))
                metadata = self.records.metadata(page, made) if is_settled and self._settings.metadata else b""
                extras = [
                    self.records.exchange(one.exchange, page_fields=page_fields(page_id, one.kind), page_url=page.url)
                    for one in page.extras
                ]
                digest, place = made.digest, self._append(group, page.exchange, made)
                group.append(self.records.of_browser(page, made, page_fields(page_id)), metadata)
                for extra, records in zip(page.extras, extras, strict=True):
                    self._append(group, extra.exchange, records)
                if is_page and made.is_revisit and page.exchange.status != HTTPStatus.NOT_MODIFIED:
                    group.duplicates.add(page.url)
            except Exception as error:
                self.records.forget((page.url,))
                group.report("record", page.url, error)
                page = msgspec.structs.replace(page, cut=(*page.cut, "defect"))
        elif page.exchange and not digest and not page.body_at and not page.is_withheld:
            digest = sha1(page.exchange.body)
        has_body = page.exchange is not None and page.exchange.status < 300
        if is_page and volume.warc and page.visit_state and has_body and place is None:
            group.bodiless[page.url] = without_validator(page.visit_state)
            page = msgspec.structs.replace(page, visit_state=group.bodiless[page.url])
        if is_page and volume.pages:
            line = len(group.lines)
            row = Row(page, digest, place, answer.extra, content)
            group.lines.append(self._lines.encode(row, partial(group.report, "line")))
        if leased is not None:
            group.shares.append(Share(leased, start, group.end, line))

    def add_exchange(self, group: Group, exchange: Exchange) -> None:
        """Add an exchange that belongs to no page."""
        if group.volume.warc:
            try:
                fields = page_fields("", exchange.kind) if isinstance(exchange, LooseExchange) else ""
                self._append(group, exchange, self.records.exchange(exchange, page_fields=fields))
            except Exception as error:
                group.report("record", exchange.url, error)

    def _append(self, group: Group, exchange: Exchange, made: ExchangeRecords) -> Place:
        assert group.volume.warc is not None
        group.append(made.request, made.response)
        length = len(made.response)
        place = Place(group.volume.warc.path.name, group.end - length, length)
        if self._settings.index:
            indexed = Indexed.of_exchange(exchange, made.digest, made.is_revisit)
            if indexed.can_be_shown:
                group.index.append(indexed.line(place.file, place.offset, length))
        return place

    def _content(self, group: Group, page: Page) -> Content:
        if not self._wanted:
            return NO_CONTENT
        try:
            content = page.content or self._wanted.of(page)
            return self._likeness.judge(page, content) if content.is_judged else content
        except Exception as error:
            group.report("text", page.url, error)
            return UNREADABLE


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
        self._volume: Volume | None = None
        self._aside: list[Volume] = []  # whose last groups are settled later
        self._serial = 0
        self._may_repeat: MayRepeat = lambda url: False
        self._in_doubt = False  # whether the last group may be unsettled
        self._marking: asyncio.TimerHandle | None = None
        self.written_bytes = 0

    def __repr__(self) -> str:
        return f"<Archive {self._settings.folder} volumes={self._serial} {self._volume}>"

    async def start(self, revoke: Revoke | None = None, may_repeat: MayRepeat | None = None) -> None:
        """Create the folder and finish the files of dead writers in it. Without `revoke`, all their pages count as settled.
        If it cannot answer now, the files in question are left to a later start. `may_repeat`: see `DurableSink.start`."""
        self._may_repeat = may_repeat or self._may_repeat
        orphans = await self._in_thread(self._find_orphans)
        judged: list[tuple[Volume, Collection[int]]] = []
        try:
            for orphan in orphans:
                try:
                    judged.append((orphan, await unsettled_in(orphan, revoke)))
                except (RedisAway, RedisMisused) as error:
                    log(logging.WARNING, "recovery_put_off", volume=orphan.name, error=error)
            await self._in_thread(lambda: self._finish_orphans(judged))
        finally:
            for orphan in orphans:
                orphan.leave()

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        """See `DurableSink.write`. A page that will be retried gets records for its exchange, but no line."""
        now = self._wall()
        async with self._order:
            try:
                group = await self._make(now, pages, exchanges, leased)
            finally:
                for failed in self._hooks.take_failures():
                    self._events.emit(failed)
            await self._in_thread(lambda: self._append(group))
        for found in group.defects:
            self._events.emit(found)
        return Written(frozenset(group.duplicates), bodiless=group.bodiless)

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        """See `DurableSink.settled`."""
        if unsettled:
            await self._in_thread(lambda: self._take_back(unsettled))
        self._in_doubt = False
        self._cancel_marking()
        self._marking = asyncio.get_running_loop().call_later(MARKED_S, self._thread.submit, self._mark_settled)

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        """See `DurableSink.take_back`. The volume is finished afterwards, with a new index."""
        await self._in_thread(lambda: self._take_back_urls(urls))

    async def set_aside(self) -> SettleLater:
        """See `DurableSink.set_aside`. The volume is set aside, and the next group begins another one."""
        volume = await self._in_thread(self._set_aside)

        async def settled(unsettled: Collection[int]) -> None:
            if volume is not None:
                await self._in_thread(lambda: self._finish_aside(volume, unsettled))

        return settled

    async def stop(self, is_in_doubt: bool = False) -> int:
        """See `DurableSink.stop`. If the last group may be unsettled, its files stay open, too."""
        self._in_doubt |= is_in_doubt
        self._cancel_marking()
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

        return await asyncio.wrap_future(self._thread.submit(translated_work))

    def _cancel_marking(self) -> None:
        if self._marking is not None:
            self._marking.cancel()

    def _mark_settled(self) -> None:
        """Write to the journal that the last group is settled. If another one is being written, that says so."""
        if self._volume is None or self._in_doubt:
            return
        with contextlib.suppress(OSError):  # the next group says the same, and raises this error if it lasts
            self._volume.mark_settled()

    def _find_orphans(self) -> list[Volume]:
        self._settings.folder.mkdir(parents=True, exist_ok=True)
        check_locks(self._settings.folder)
        return find_orphans(self._settings.folder)

    def _finish_orphans(self, judged: Sequence[tuple[Volume, Collection[int]]]) -> None:
        finish_orphans(self._settings.folder, judged, self._settings.index)
        self._post_processor.catch_up()

    async def _make(
        self, now: float, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> Group:
        """Make a group, in the event loop for some milliseconds at a time. It counts as written once it is appended."""
        encoder = self._encoder
        group = await self._in_thread(lambda: encoder.begin(self._current_volume(now)))
        steps = [
            (encoder.is_expensive(page), partial(encoder.add_page, group, page, leased[number] if leased else None))
            for number, page in enumerate(pages)
        ]
        steps += [(len(one.body) > LARGE_BODY, partial(encoder.add_exchange, group, one)) for one in exchanges]
        until = time.monotonic() + SLICE_S
        for is_expensive, step in steps:
            if is_expensive:
                await self._in_thread(step)
            else:
                step()
            if time.monotonic() > until:
                await asyncio.sleep(0)
                until = time.monotonic() + SLICE_S
        return group

    def _append(self, group: Group) -> None:
        volume, entry = group.volume, group.journal_entry(self._settings.crawl)
        records, lines = b"".join(group.records), b"".join(group.lines)
        try:
            volume.append(records, lines, group.index, entry, time.monotonic())
        finally:
            if volume.is_broken:
                self._volume = None
        self._encoder.is_written = True
        self._in_doubt = entry is not None
        self.written_bytes += len(records) + len(lines)

    def _take_back(self, unsettled: Collection[int]) -> None:
        volume = self._volume
        if volume is None or volume.doubt is None:
            return
        self._encoder.records.forget({volume.doubt.shares[number].leased.entry.url for number in unsettled})
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
            self._encoder.records.forget({one.entry.url for one in urls})
            if not in_doubt and (orphan := adopt_orphan(open_path(volume.journal.path))):
                with contextlib.closing(orphan.journal):
                    self._finish_orphans([(orphan, ())])

    def _set_aside(self) -> Volume | None:
        volume = self._volume
        if volume is None or not self._in_doubt:
            return None
        self._encoder.is_written = False  # its pages may be removed at any time
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
        if self._volume is not None and self._volume.is_due(self._settings.max_bytes, now - self._settings.max_age):
            self._finish()
        if self._volume is None:
            self._volume = self._new_volume(now)
        return self._volume

    def _new_volume(self, now: float) -> Volume:
        self._serial += 1
        settings, folder = self._settings, self._settings.folder
        name = file_name(f"{settings.crawl}-{settings.replica}-{digits(now)}-{self._serial:05d}")
        journal = Segment.create(folder / (name + JOURNAL))
        volume = Volume(now, self._settings.fsync, journal, may_repeat=self._may_repeat)
        try:
            if self._settings.warc:
                warc = folder / (name + COMPRESSIONS[self._settings.compression].suffix)
                volume.warc = Segment.create(warc)
                volume.warc.begin(self._encoder.records.warcinfo(warc.name, now))
            if self._settings.pages:
                volume.pages = Segment.create(folder / (name + LINES))
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
