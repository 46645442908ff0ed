"""The stages of a page, each measured by itself: reading it, choosing its links, and making its records.

Each stage does its work with the crawler's own code for a group of pages, and then the *floor*: what its native part takes
for the same bytes, in a loop that does nothing else.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha1 as native_sha1
from pathlib import Path

import can_ada
import msgspec
from isal import isal_zlib
from zlib_ng import zlib_ng

from crawler.hooks import PageHooks
from crawler.page import Exchange, Page
from crawler.parse.content_coding import DEFAULT_LIMIT, decode_body
from crawler.parse.document import Document, ParsedDocument, ParseLimits, read, read_if_small
from crawler.parse.encoding import MediaType, encoding_guessed, encoding_of_meta, encoding_sent
from crawler.parse.html import Extracted, ExtractPolicy, _text_of
from crawler.parse.tags import Tags, _find, scan
from crawler.scope.link_filter import LinkFilter, breadth_first
from crawler.scope.recent_urls import RecentUrls
from crawler.scope.scope import Scope
from crawler.scope.traps import TrapPolicy
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.cdxj_index import Indexed
from crawler.sinks.external_sort import SortedLines
from crawler.sinks.group_encoder import EncodedGroup, GroupEncoder
from crawler.sinks.journal import JOURNAL
from crawler.sinks.page_lines import PageLines, Place, Row
from crawler.sinks.segment import LINES, Segment
from crawler.sinks.volume import Volume
from crawler.sinks.warc import ExchangeRecords, WarcRecords, sha1
from crawler.worker.outcomes import judge_status
from crawler.worker.page_builder import bare_page
from frontier.entries import Entry
from frontier.queue import Lease, LeasedUrl
from frontier.urls import DEFAULT_RULES, UrlRules, _directories, canonicalize_links
from politeness.robots_rules import Rules

ROBOTS = b"User-agent: *\nDisallow: /_sources/\n"
"""That of `tests.bench.docweb`."""


class Spent:
    """CPU seconds of this thread by stage, of the crawler's code and of the floor, and how many pages they are of."""

    def __init__(self) -> None:
        self.ours: dict[str, float] = defaultdict(float)
        self.floor: dict[str, float] = defaultdict(float)
        self.pages = 0
        self.since = self.until = time.monotonic()

    @contextmanager
    def on(self, times: dict[str, float], stage: str) -> Iterator[None]:
        """Add what the block takes to the `stage` of `times`."""
        before = time.thread_time()
        yield
        times[stage] += time.thread_time() - before
        self.until = time.monotonic()


@dataclass(frozen=True, slots=True)
class Visited:
    """A page that was received, and the URL of the lease under which it was."""

    leased: LeasedUrl
    exchange: Exchange

    @property
    def entry(self) -> Entry:
        return self.leased.entry

    @property
    def content_type(self) -> str:
        return (self.exchange.header(b"content-type") or b"").decode("latin-1")


def leased_urls(lease: Lease) -> list[LeasedUrl]:
    return [LeasedUrl(lease.shard, lease.domain, lease.token, entry) for entry in lease.entries]


# Reading

_CHARSET = re.compile(rb"charset=[\"']?([A-Za-z0-9_-]+)")
_LIMITS = ParseLimits(ExtractPolicy(), DEFAULT_LIMIT)
_OTHER_RULES = UrlRules(max_length=DEFAULT_RULES.max_length - 1)
"""Resolved links are remembered by rules: with rules of its own, the stage finds as few of them as the whole does."""

WHOLE = "all of reading"
ALL_RECORDS = "all of the records"


class Reading:
    """Turns exchanges into pages and the links to follow."""

    def __init__(self) -> None:
        _directories.cache_clear()  # of the round before
        self._recent = RecentUrls(200_000)
        self._filter = LinkFilter(Scope.of(), TrapPolicy(), breadth_first, self._recent)
        self._rules = Rules.parse(ROBOTS, "peercrawl")
        self._seen: set[str] = set()

    def read(self, spent: Spent, group: Sequence[Visited]) -> tuple[list[Page], list[Entry]]:
        """The pages of `group`, and their links to push."""
        self._undo_gzip(spent, group)
        tags = self._scan(spent, group)
        self._find_charset(spent, group, tags)
        self._resolve(spent, group, tags)
        with spent.on(spent.ours, WHOLE):
            documents = [_parsed(one) for one in group]
            pages = [_described(one, document) for one, document in zip(group, documents, strict=True)]
        return pages, self._choose(spent, group, [document.found for document in documents])

    def _undo_gzip(self, spent: Spent, group: Sequence[Visited]) -> None:
        bodies = [isal_zlib.compress(one.exchange.body, 2, wbits=31) for one in group]
        with spent.on(spent.ours, "gzip of a response"):
            for body in bodies:
                decode_body(body, "gzip")
        with spent.on(spent.floor, "gzip of a response"):
            for body in bodies:
                zlib_ng.decompress(body, 31)

    def _scan(self, spent: Spent, group: Sequence[Visited]) -> list[Tags]:
        bodies = [one.exchange.body for one in group]
        with spent.on(spent.ours, "scanning for tags"):
            tags = [scan(body, True, True) for body in bodies]
        with spent.on(spent.floor, "scanning for tags"):
            for body in bodies:
                _find(body, True)
        return tags

    def _find_charset(self, spent: Spent, group: Sequence[Visited], tags: Sequence[Tags]) -> None:
        sent = [(one.exchange.body, one.content_type) for one in group]
        with spent.on(spent.ours, "charset"):
            for (body, content_type), of in zip(sent, tags, strict=True):
                _ = encoding_sent(body, MediaType.parse(content_type).charset) or _declared(of) or _guess(body)
        with spent.on(spent.floor, "charset"):
            for body, _ in sent:
                _CHARSET.search(body, 0, 1024)

    def _resolve(self, spent: Spent, group: Sequence[Visited], tags: Sequence[Tags]) -> None:
        written = [[href.decode("latin-1") for href in of.hrefs] for of in tags]
        with spent.on(spent.ours, "resolving links"):
            for one, hrefs in zip(group, written, strict=True):
                canonicalize_links(hrefs, one.entry.url, _OTHER_RULES)
        with spent.on(spent.floor, "resolving links"):
            for one, hrefs in zip(group, written, strict=True):
                base = can_ada.parse(one.entry.url)
                for href in hrefs:
                    _ = base + href

    def _choose(self, spent: Spent, group: Sequence[Visited], found: Sequence[Extracted]) -> list[Entry]:
        chosen: dict[str, Entry] = {}
        with spent.on(spent.ours, "scope and robots.txt"):
            for one, of in zip(group, found, strict=True):
                self._rules.decide(one.entry.url)
                links = zip(of.urls, (link.kind for link in of.links), strict=True)
                selected, _ = self._filter.select(links, one.entry)
                chosen.update((link.url, link) for link in selected if link not in self._recent)
        with spent.on(spent.floor, "scope and robots.txt"):
            for one, of in zip(group, found, strict=True):
                _ = one.entry.url.find("/_sources/", 8)
                _ = [url for url in of.urls if url.href not in self._seen]
        for link in chosen.values():
            self._recent.add(link)
            self._seen.add(link.url)
        return list(chosen.values())


def _declared(tags: Tags) -> str | None:
    metas = (_text_of(meta, "utf-8") for meta in tags.meta)
    declared = (encoding_of_meta(meta["charset"], meta["http-equiv"], meta["content"]) for meta in metas)
    return next(filter(None, declared), None)


def _guess(body: bytes) -> str:
    return encoding_guessed(body, is_xml=False)


def _parsed(one: Visited) -> ParsedDocument:
    document = Document(one.exchange.body, one.entry.url, "", one.content_type)
    return read_if_small(document, _LIMITS) or read(document, _LIMITS)


def _described(one: Visited, document: ParsedDocument) -> Page:
    page = bare_page(one.entry, judge_status(one.exchange.status), one.exchange, one.exchange.started_at)
    return document.describe(page, one.content_type, None)


# The archive


class Archiving:
    """Makes the records of pages and writes them to files in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._settings = ArchiveSettings(folder=folder, crawl="crawl", replica="bench-1a2b", revisits=0)
        self._encoder = GroupEncoder(self._settings, PageHooks())
        self._records = WarcRecords(self._settings)
        self._lines = PageLines(True, self._settings.replica)
        self._volume = Volume(time.time(), False, Segment.create(folder / f"v{JOURNAL}"), SortedLines(folder))
        warc = Segment.create(folder / "v.warc.gz")
        self._volume.add_warc(warc, self._encoder.records.warcinfo(warc.path.name, time.time()))
        self._records.warcinfo(warc.path.name, time.time())
        self._volume.add_pages(Segment.create(folder / f"v{LINES}"))
        self._plain = os.open(folder / "plain", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def close(self) -> None:
        self._volume.discard()
        self._encoder.stop()
        os.close(self._plain)

    def write(self, spent: Spent, group: Sequence[Visited], pages: Sequence[Page]) -> None:
        """Write `pages`, those of `group`."""
        digests = self._digest(spent, pages)
        made = self._make_records(spent, pages, digests)
        places = [Place("v.warc.gz", number, len(one.response)) for number, one in enumerate(made)]
        self._make_index(spent, made, pages)
        self._make_lines(spent, [Row(*row) for row in zip(pages, digests, places, strict=True)])
        with spent.on(spent.ours, ALL_RECORDS):
            encoded = _result(self._encoder.make(self._volume, pages, [], [one.leased for one in group]))
        assert not encoded.defects
        self._append(spent, encoded)

    def _digest(self, spent: Spent, pages: Sequence[Page]) -> list[str]:
        bodies = [page.exchange.body for page in pages if page.exchange]
        with spent.on(spent.ours, "digest"):
            digests = [sha1(body) for body in bodies]
        with spent.on(spent.floor, "digest"):
            for body in bodies:
                native_sha1(body, usedforsecurity=False).digest()
        return digests

    def _make_records(self, spent: Spent, pages: Sequence[Page], digests: Sequence[str]) -> list[ExchangeRecords]:
        made: list[ExchangeRecords] = []
        packed: list[bytes] = []
        with spent.on(spent.ours, "WARC records and their gzip"):
            for page, digest in zip(pages, digests, strict=True):
                assert page.exchange
                of = self._records.exchange(page.exchange, digest)
                packed += (of.request, of.response, self._records.metadata(page, of))
                made.append(of)
        plain = [isal_zlib.decompress(record, 31) for record in packed]
        with spent.on(spent.floor, "WARC records and their gzip"):
            for record in plain:
                isal_zlib.compress(record, 2, wbits=31)
        return made

    def _make_index(self, spent: Spent, made: Sequence[ExchangeRecords], pages: Sequence[Page]) -> None:
        with spent.on(spent.ours, "CDXJ line"):
            lines = [
                Indexed.of_exchange(page.exchange, of.digest, False).line("v.warc.gz", 1_000_000, len(of.response))
                for page, of in zip(pages, made, strict=True)
                if page.exchange
            ]
        fields = [msgspec.json.decode(line.split(b" ", 2)[2]) for line in lines]
        with spent.on(spent.floor, "CDXJ line"):
            for one in fields:
                msgspec.json.encode(one)

    def _make_lines(self, spent: Spent, rows: Sequence[Row]) -> None:
        with spent.on(spent.ours, "JSON line"):
            lines = [self._lines.encode(row, _raise) for row in rows]
        fields, encode = [msgspec.json.decode(line) for line in lines], msgspec.json.Encoder().encode
        with spent.on(spent.floor, "JSON line"):
            for one in fields:
                encode(one)

    def _append(self, spent: Spent, group: EncodedGroup) -> None:
        with spent.on(spent.ours, "journal and files"):
            self._volume.append(group.records, group.lines, group.index, group.doubt, time.monotonic())
        with spent.on(spent.floor, "journal and files"):
            os.write(self._plain, group.records)
            os.write(self._plain, group.lines)


def _result(making: Iterator[None]) -> EncodedGroup:
    while True:
        try:
            next(making)
        except StopIteration as made:
            return made.value  # type: ignore[no-any-return]


def _raise(_: str, error: Exception) -> None:
    raise error
