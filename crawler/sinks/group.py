"""A group of pages as it will stand in the files of a volume."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Sequence

import msgspec

from crawler.defects import defect
from crawler.events import DefectFound
from crawler.hooks import KEEP, HookResult, PageHooks
from crawler.page import Exchange, Outcome, Page
from crawler.sinks.content import NOTHING, UNREADABLE, Content, content_of
from crawler.sinks.content_process import Job, TextProcess, is_light
from crawler.sinks.index import Indexed
from crawler.sinks.journal import JournalEntry, Share
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.pages import PageLines, Place, Row, minimal_row
from crawler.sinks.segment import Segment
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, sha1
from frontier.queue import LeasedUrl

_SLICE = 1 << 18
"""Work between two moments at which others get their turn, as `_work` counts it: 2 ms."""

_LINES = 32
"""Lines written between two such moments."""

_LONG = 1 << 20
"""Work that is not done in the event loop, if it is one page: 8 ms."""

_EACH = 32_768
"""What the records of a page or a robots.txt take besides, however small, as so many bytes: a quarter of a millisecond."""


class Group(msgspec.Struct, frozen=True):
    """What a group adds to the files of a volume, and the URLs whose body was there before. `doubt`: what may have to be
    taken back. `defects`: what was raised while it was made, each of which costs one page a part of its records."""

    records: bytes
    index: list[bytes]
    lines: bytes
    duplicates: frozenset[str]
    doubt: JournalEntry | None
    defects: list[DefectFound]


class _Tape:
    """The records of a group as they will stand in the file `warc`, and the lines for its index."""

    def __init__(self, warc: Segment | None, with_index: bool) -> None:
        self.records: list[bytes] = []
        self.index: list[bytes] = []
        self._name = warc.path.name if warc else ""
        self.at = warc.size if warc else 0
        self._with_index = with_index

    def append(self, *records: bytes) -> None:
        self.records += records
        self.at += sum(map(len, records))

    def add(self, exchange: Exchange, made: ExchangeRecords) -> Place:
        """Append the records `made` of `exchange`; returns where the response stands."""
        self.append(made.request, made.response)
        place = Place(self._name, self.at - len(made.response), len(made.response))
        if self._with_index:
            indexed = Indexed.of_exchange(exchange, made.digest, made.is_revisit)
            self.index.append(indexed.line(place.file, place.offset, place.length))
        return place


class Groups:
    """Makes the groups of one replica, and remembers what later ones may refer to: bodies that were archived, and texts."""

    def __init__(self, settings: ArchiveSettings, hooks: PageHooks) -> None:
        self._settings = settings
        self._hooks = hooks
        self._records = WarcRecords(settings)
        self._lines = PageLines(settings)
        self._text_process = TextProcess()
        self._likeness = Likeness(
            settings.near_duplicates, settings.soft_404, settings.near_remembered, simhash=settings.simhash
        )

    def stop(self) -> None:
        """End what was started to make groups."""
        self._text_process.stop()

    def warcinfo(self, file_name: str, now: float) -> bytes:
        """The first record of the file `file_name`."""
        return self._records.warcinfo(file_name, now)

    @property
    def are_quick(self) -> bool:
        """Whether `make` takes as long as the bytes take to compress and digest, and runs nothing of the user's."""
        return not (self._hooks or self._asks_for_content)

    @property
    def _asks_for_content(self) -> bool:
        settings = self._settings
        return settings.text != "off" or settings.structured or settings.judges

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """Within it a group is made and written; if that fails, nothing of the group is remembered."""
        self._records.settle()  # the group before has been, by now
        try:
            yield
        except BaseException:
            self._records.undo()
            self._likeness.undo()
            raise
        self._likeness.settle()

    def forget(self, urls: Collection[str]) -> None:
        """The pages of `urls` in the group made last are taken back."""
        self._records.forget(urls)

    def make(
        self, volume: Volume, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> Generator[bool, None, Group]:
        """The group for the end of `volume`, which is what the generator returns; see `DurableSink.write`. It yields
        after some milliseconds of work, so that the event loop need not stand still: whether what comes next takes
        longer."""
        tape = _Tape(volume.warc, with_index=self._settings.index)
        rows: list[Row] = []
        duplicates: set[str] = set()
        shares: list[Share] = []
        defects: list[DefectFound] = []
        work = 0
        for number, page in enumerate(pages):
            alone = _work(page)
            work += alone
            if work > _SLICE:
                work = alone
                yield alone > _LONG
            start = tape.at
            is_settled = page.outcome is not Outcome.RETRY
            answer = self._hooks.ask(page) if is_settled else KEEP
            content = self._content(page, defects) if is_settled else NOTHING
            digest, place = page.digest, None
            if volume.warc and page.exchange and self._keeps(page, answer, content):
                try:
                    made = self._records.exchange(page.exchange, digest)
                    metadata = self._records.metadata(page, made) if is_settled and self._settings.metadata else b""
                    digest, place = made.digest, tape.add(page.exchange, made)
                    tape.append(metadata)
                    if is_settled and made.is_revisit:
                        duplicates.add(page.url)
                except Exception as error:
                    self._records.forget((page.url,))
                    defects.append(defect("record", page.url, error))
                    page = msgspec.structs.replace(page, cut=(*page.cut, "defect"))
            elif page.exchange and not digest:
                digest = sha1(page.exchange.body)
            if is_settled:
                rows.append(Row(page, digest, place, answer.extra, content))
            if leased:
                shares.append(Share(leased[number], start, tape.at, len(rows) - 1 if is_settled else -1))
        for exchange in exchanges if volume.warc else ():
            alone = _EACH + len(exchange.body)
            work += alone
            if work > _SLICE:
                work = alone
                yield alone > _LONG
            try:
                made = self._records.exchange(exchange)
                tape.add(exchange, made)
            except Exception as error:
                defects.append(defect("record", exchange.url, error))
        lines: list[bytes] = []
        for at in range(0, len(rows), _LINES) if volume.pages else ():
            yield False
            lines.append(self._encoded(rows[at : at + _LINES], defects))
        doubt = self._doubt(volume, shares)
        return Group(b"".join(tape.records), tape.index, b"".join(lines), frozenset(duplicates), doubt, defects)

    def _keeps(self, page: Page, answer: HookResult, content: Content) -> bool:
        is_barred = page.noarchive and self._settings.noarchive
        return answer.keeps_body and not content.is_dropped and not is_barred

    def _doubt(self, volume: Volume, shares: list[Share]) -> JournalEntry | None:
        if not shares:
            return None
        records, lines = volume.warc, volume.pages
        return JournalEntry(self._settings.crawl, records.size if records else 0, lines.size if lines else 0, shares)

    def _encoded(self, rows: Sequence[Row], defects: list[DefectFound]) -> bytes:
        """The lines of `rows`. A line that cannot be made is replaced by one that says so."""
        try:
            return self._lines.encode(rows)
        except Exception as error:
            if len(rows) > 1:
                return b"".join(self._encoded([row], defects) for row in rows)
            defects.append(defect("line", rows[0].page.url, error))
            return self._lines.encode([minimal_row(rows[0])])

    def _content(self, page: Page, defects: list[DefectFound]) -> Content:
        settings = self._settings
        if not self._asks_for_content:
            return NOTHING
        try:
            job = Job(page, settings.text, settings.structured, settings.judges, settings.soft_404 != "off")
            content = content_of(*job) if is_light(page) else self._text_process.content_of(job)
            return self._likeness.judge(page, content) if content.is_judged else content
        except Exception as error:
            defects.append(defect("text", page.url, error))
            return UNREADABLE


def _work(page: Page) -> int:
    """How much there is to do about `page`, in bytes to compress and digest."""
    return _EACH + (len(page.exchange.body) if page.exchange else 0) + 100 * len(page.links)
