"""Makes the records, index lines and JSON lines of a group of pages."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Generator, Iterator, Sequence
from http import HTTPStatus

import msgspec

from crawler.defects import Stage, defect
from crawler.errors import SinkFull, is_machines_fault
from crawler.events import DefectFound
from crawler.hooks import KEEP, PageHooks
from crawler.page import NO_CONTENT, UNREADABLE, Content, Exchange, Outcome, Page
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.cdxj_index import Indexed
from crawler.sinks.journal import JournalEntry, Share
from crawler.sinks.near_duplicates import Likeness
from crawler.sinks.page_lines import PageLines, Place, Row
from crawler.sinks.segment import Segment
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, sha1
from frontier.settle import LeasedUrl

LARGE_BODY = LARGE_LINKS = 1 << 20
"""A page with a larger body, or longer links in all, is too much work for the event loop: more than 5 ms."""

FEW_LINKS = 512
"""So many links are shorter than `LARGE_LINKS`."""


class EncodedGroup(msgspec.Struct, frozen=True):
    """What a group adds to the files of a volume. `duplicates`: URLs whose body was already archived; a 304 has none.
    `doubt`: the journal entry. `defects`: exceptions raised while it was made, each of which costs one page a part of its
    records."""

    records: bytes
    index: list[bytes]
    lines: bytes
    duplicates: frozenset[str]
    doubt: JournalEntry | None
    defects: list[DefectFound]


def _defect(stage: Stage, url: str, error: Exception) -> DefectFound:
    """The report of `error`. Raises SinkFull if this machine lacks something to make the group, which can be made later."""
    if is_machines_fault(error):
        raise SinkFull(f"cannot make records now: {error}") from error
    return defect(stage, url, error)


def _has_long_links(page: Page) -> bool:
    return len(page.links) > FEW_LINKS and sum(len(link.url) for link in page.links) > LARGE_LINKS


class _Tape:
    """The records to append to the file `warc`, and their index lines."""

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
        """Append the records `made` of `exchange`. Returns the place of the response."""
        self.append(made.request, made.response)
        place = Place(self._name, self.at - len(made.response), len(made.response))
        if self._with_index:
            indexed = Indexed.of_exchange(exchange, made.digest, made.is_revisit)
            self.index.append(indexed.line(place.file, place.offset, place.length))
        return place


class GroupEncoder:
    """Makes the groups of one replica, and remembers the archived bodies and texts to which later groups may refer."""

    def __init__(self, settings: ArchiveSettings, hooks: PageHooks) -> None:
        self._settings = settings
        self._hooks = hooks
        self.records = WarcRecords(settings)
        self._lines = PageLines(settings.links, settings.replica)
        self._wanted = settings.content
        self._likeness = Likeness(
            settings.near_duplicates, settings.soft_404, settings.near_remembered, simhash=settings.simhash
        )

    @contextlib.contextmanager
    def undone_if_it_fails(self) -> Iterator[None]:
        """A block in which a group is made or written. If it raises, nothing of the group is remembered."""
        try:
            yield
        except BaseException:
            self.forget_last()
            raise

    def is_ordinary(self, pages: Sequence[Page], exchanges: Sequence[Exchange]) -> bool:
        """Whether the records of each page take some milliseconds at most, and no code of users is called."""
        if self._hooks or self._wanted:
            return False
        received = [*exchanges, *(page.exchange for page in pages if page.exchange)]
        return all(len(one.body) <= LARGE_BODY for one in received) and not any(map(_has_long_links, pages))

    def forget_last(self) -> None:
        """Have no later group refer to the last one, which is set aside: its pages may be removed at any time."""
        self.records.undo()
        self._likeness.undo()

    def forget(self, urls: Collection[str]) -> None:
        """Forget the pages with these `urls` in the last group, which were removed."""
        self.records.forget(urls)

    def make(
        self, volume: Volume, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> Generator[None, None, EncodedGroup]:
        """Make the group to append to `volume`, and pause before each page. For the arguments see `DurableSink.write`."""
        self.records.confirm()  # the group before is settled by now
        self._likeness.confirm()
        with self.undone_if_it_fails():
            return (yield from self._make(volume, pages, exchanges, leased))

    def _make(
        self, volume: Volume, pages: Sequence[Page], exchanges: Sequence[Exchange], leased: Sequence[LeasedUrl]
    ) -> Generator[None, None, EncodedGroup]:
        tape = _Tape(volume.warc, with_index=self._settings.index)
        rows: list[Row] = []
        duplicates: set[str] = set()
        shares: list[Share] = []
        defects: list[DefectFound] = []
        for number, page in enumerate(pages):
            yield
            start = tape.at
            is_settled = page.outcome is not Outcome.RETRY
            answer = self._hooks.ask(page) if is_settled else KEEP
            content = self._content(page, defects) if is_settled else NO_CONTENT
            is_barred = page.is_withheld or (page.noarchive and self._settings.noarchive)
            digest, place = page.digest, None
            if volume.warc and page.exchange and answer.keeps_body and not content.is_dropped and not is_barred:
                try:
                    made = self.records.exchange(page.exchange, digest, page.body_at)
                    metadata = self.records.metadata(page, made) if is_settled and self._settings.metadata else b""
                    digest, place = made.digest, tape.add(page.exchange, made)
                    tape.append(metadata)
                    if is_settled and made.is_revisit and page.exchange.status != HTTPStatus.NOT_MODIFIED:
                        duplicates.add(page.url)
                except Exception as error:
                    self.records.forget((page.url,))
                    defects.append(_defect("record", page.url, error))
                    page = msgspec.structs.replace(page, cut=(*page.cut, "defect"))
            elif page.exchange and not digest and not page.body_at and not page.is_withheld:
                digest = sha1(page.exchange.body)
            if is_settled:
                rows.append(Row(page, digest, place, answer.extra, content))
            if leased:
                shares.append(Share(leased[number], start, tape.at, len(rows) - 1 if is_settled else -1))
        for exchange in exchanges if volume.warc else ():
            try:
                tape.add(exchange, self.records.exchange(exchange))
            except Exception as error:
                defects.append(_defect("record", exchange.url, error))
        lines = self._encoded(rows, defects) if volume.pages else b""
        doubt = self._doubt(volume, shares)
        return EncodedGroup(b"".join(tape.records), tape.index, lines, frozenset(duplicates), doubt, defects)

    def _doubt(self, volume: Volume, shares: list[Share]) -> JournalEntry | None:
        if not shares:
            return None
        records, lines = volume.warc, volume.pages
        return JournalEntry(self._settings.crawl, records.size if records else 0, lines.size if lines else 0, shares)

    def _encoded(self, rows: Sequence[Row], defects: list[DefectFound]) -> bytes:
        def report(url: str, error: Exception) -> None:
            defects.append(_defect("line", url, error))

        return b"".join([self._lines.encode(row, report) for row in rows])

    def _content(self, page: Page, defects: list[DefectFound]) -> Content:
        if not self._wanted:
            return NO_CONTENT
        try:
            content = page.content or self._wanted.of(page)
            return self._likeness.judge(page, content) if content.is_judged else content
        except Exception as error:
            defects.append(_defect("text", page.url, error))
            return UNREADABLE
