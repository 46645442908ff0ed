"""Files whose writer died at any byte are finished, and pages that were written but not settled are removed."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import SinkFull, UserError
from crawler.page import Outcome
from crawler.sinks import archive as archive_module
from crawler.sinks.archive import Archive
from crawler.sinks.compression import COMPRESSIONS, CompressionName
from crawler.sinks.files import LINES, Segment
from crawler.sinks.journal import (
    JOURNAL,
    KEPT_S,
    JournalEntry,
    JournalRewrite,
    Share,
    decoded,
    encoded,
    last_group_begins,
    without,
)
from crawler.sinks.lines import PageLines, Row
from crawler.sinks.recovery import adopt_orphan, recover
from crawler.sinks.volume import Volume
from crawler.sinks.warc import WarcRecords
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.settle import LeasedUrl
from tests.e2e.harness import wait_until
from tests.sinks import readers
from tests.sinks.values import NOON, archived, archiving, disowning, exchange, inherit, page, settings
from tests.typed import Typed


def warc_records(compression: CompressionName) -> list[bytes]:
    """The records of a small file, the warcinfo first."""
    records = WarcRecords(settings(Path(), compression=compression))
    whole = [records.warcinfo("cut.warc.gz", NOON)]
    for name in ("a", "b", "c"):
        made = records.exchange(exchange(name, name.encode() * 300))
        whole += [made.request, made.response]
    return whole


def json_lines() -> list[bytes]:
    lines, errors = PageLines(True, "one"), []
    return [
        lines.encode(Row(page(exchange(name, b""))), lambda *error: errors.append(error)) for name in ("a", "b", "c")
    ]


RECORDS = {compression: warc_records(compression) for compression in COMPRESSIONS}
WHOLE_LINES = json_lines()
either = pytest.mark.parametrize("compression", COMPRESSIONS)


def whole_part(pieces: list[bytes], cut: int, header: int) -> bytes | None:
    """The part of `pieces` that must remain if only `cut` bytes were written. None if the file must be removed."""
    kept = b""
    count = 0
    for piece in pieces:
        if len(kept) + len(piece) > cut:
            break
        kept += piece
        count += 1
    return kept if count > header else None


def recovered(folder: Path, name: str, data: bytes) -> bytes | None:
    (folder / f"{name}.open").write_bytes(data)
    recover(folder)
    assert not (folder / f"{name}.open").exists()
    kept = folder / name
    if not kept.exists():
        return None
    try:
        return kept.read_bytes()
    finally:
        kept.unlink()


@either
def test_a_warc_file_cut_at_any_byte_keeps_all_its_whole_records(tmp_path: Path, compression: CompressionName) -> None:
    records, name = RECORDS[compression], "cut" + COMPRESSIONS[compression].suffix
    data = b"".join(records)
    for cut in range(len(data) + 1):
        assert recovered(tmp_path, name, data[:cut]) == whole_part(records, cut, header=1), cut


def test_json_lines_cut_at_any_byte_keep_all_their_whole_lines(tmp_path: Path) -> None:
    data = b"".join(WHOLE_LINES)
    for cut in range(len(data) + 1):
        assert recovered(tmp_path, "cut.pages.jsonl", data[:cut]) == whole_part(WHOLE_LINES, cut, header=0), cut


@given(
    compression=st.sampled_from(list(COMPRESSIONS)),
    share=st.floats(0, 1),
    junk=st.binary(max_size=300) | st.just(None),
)
def test_junk_after_the_cut_is_removed(compression: CompressionName, share: float, junk: bytes | None) -> None:
    """A power failure may leave zeros (None: 70,000 of them), or the earlier content of the blocks."""
    junk = bytes(70_000) if junk is None else junk
    records, name = RECORDS[compression], "cut" + COMPRESSIONS[compression].suffix
    cut = int(share * sum(map(len, records)))
    kept = whole_part(records, cut, header=0) or b""
    with TemporaryDirectory() as folder:
        left = recovered(Path(folder), name, kept + b"\0" + junk)
    assert left == whole_part(records, cut, header=1)


@either
def test_records_larger_than_a_reading_step_are_recovered(tmp_path: Path, compression: CompressionName) -> None:
    records, name = WarcRecords(settings(Path(), compression=compression)), "cut" + COMPRESSIONS[compression].suffix
    noise = random.Random(1).randbytes(300_000)
    whole = [records.warcinfo(name, NOON), records.exchange(exchange("large", noise)).response]
    data = b"".join(whole)
    assert recovered(tmp_path, name, data + data[:100_000] + data[:5]) == data + whole[0]
    assert recovered(tmp_path, name, data[:-1]) is None


@either
def test_a_record_with_a_wrong_byte_is_not_whole(tmp_path: Path, compression: CompressionName) -> None:
    """Both compressions have a checksum. In zstd it is optional, but required in WARC files."""
    *before, last = RECORDS[compression]
    middle = len(last) // 2
    damaged = last[:middle] + bytes([last[middle] ^ 1]) + last[middle + 1 :]
    left = recovered(tmp_path, "cut" + COMPRESSIONS[compression].suffix, b"".join([*before, damaged]))
    assert left == b"".join(before)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.open", "notes.txt.open", "done.warc.gz", "done.pages.jsonl"):
        (tmp_path / name).write_bytes(b"mine")
    assert recover(tmp_path) == []
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b"mine"}


def test_the_file_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    living = Segment.create(tmp_path / "a.pages.jsonl")
    living.append(b"whole\nhalf")
    assert recover(tmp_path) == []
    living.append(b"\n")
    living.finish()
    assert (tmp_path / "a.pages.jsonl").read_bytes() == b"whole\nhalf\n"


def test_a_file_that_its_writer_gave_up_is_recovered(tmp_path: Path) -> None:
    dead = Segment.create(tmp_path / "a.pages.jsonl")
    dead.append(b"whole\nhalf")
    dead.close()
    assert recover(tmp_path) == [tmp_path / "a.pages.jsonl"]
    assert (tmp_path / "a.pages.jsonl").read_bytes() == b"whole\n"


@pytest.mark.parametrize("life", range(10))
def test_a_killed_writer_loses_nothing_that_it_called_durable(tmp_path: Path, life: int) -> None:
    # Given a process that writes groups and tells of each when it is durable, killed in the midst of it,
    compression = list(COMPRESSIONS)[life % 2]
    durable = durable_before_death(tmp_path, compression, groups=random.Random(life).randint(1, 40))
    # When the next replica starts in its folder,
    asyncio.run(archived(tmp_path))
    # Then whole files are there, with everything that was called durable.
    assert {path.suffix for path in tmp_path.iterdir()} == {
        Path(COMPRESSIONS[compression].suffix).suffix,
        ".cdxj",
        ".jsonl",
    }
    lines = readers.lines(tmp_path)
    stored = set()
    for file in readers.warc_files(tmp_path):
        readers.check(file)
        stored |= {record.url for record in readers.by_fastwarc(file) if record.type == "response"}
    listed = {str(line["url"]) for line in lines}
    assert len(listed) == len(lines)
    assert durable <= listed <= stored


def durable_before_death(folder: Path, compression: str, groups: int) -> set[str]:
    """The URLs that a process had reported as durable when it was killed, after `groups` groups or a little later."""
    command = [sys.executable, "-m", "tests.sinks.endless_writer", str(folder), compression]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = "".join(writer.stdout.readline() for _ in range(groups))
        writer.kill()
        said += writer.stdout.read()
    return set(said[: said.rfind("\n")].split())


NAMES = "abcdef"
ROBOTS = exchange("robots.txt", b"User-agent: *\n")


def leased(name: str) -> LeasedUrl:
    return LeasedUrl(
        0, "site.test", 7, Entry(f"https://site.test/{name}", "site.test", 1.5, depth=1, via="https://v.test/")
    )


async def write_group(archive: Archive, names: Sequence[str] = NAMES) -> None:
    """A page for each of `names` and a robots.txt. "b" will be tried again, so it has no row; "c" was denied, and has no
    record; "d" has an answer of its own length."""
    noise = random.Random(1)
    made = {name: exchange(name, noise.randbytes(2_000 + 500 * (name == "d"))) for name in names}
    pages = [
        page(None if name == "c" else made[name], name, outcome=Outcome.RETRY if name == "b" else Outcome.DONE)
        for name in names
    ]
    await archive.write(pages, [ROBOTS], [leased(name) for name in names])


async def begun(folder: Path, compression: CompressionName) -> Archive:
    """An archive whose first group, of one page, was settled, and whose second is in doubt."""
    archive = Archive(settings(folder, compression=compression))
    await archive.start()
    await archive.write([page(exchange("first", b"first"))], (), [leased("first")])
    await archive.settled()
    await write_group(archive)
    return archive


async def die(archive: Archive, folder: Path) -> None:
    """Leave the files like a writer that dies before it knows whether its last group was settled."""
    await archive.stop()
    assert readers.files(folder, JOURNAL + ".open")


def check(folder: Path, gone: str) -> None:
    """The files contain "first", the pages that are not in `gone`, and robots.txt, and they agree with each other."""
    kept = ["first", *(name for name in NAMES if name not in gone)]
    (file,) = readers.warc_files(folder)
    readers.check(file)
    records = {
        record.url.rpartition("/")[2]: record.offset
        for record in readers.by_fastwarc(file)
        if record.type in ("response", "revisit")
    }
    assert list(records) == [*(name for name in kept if name != "c"), "robots.txt"]
    requests = [record.url for record in readers.by_fastwarc(file) if record.type == "request"]
    assert len(requests) == len(records)
    rows = readers.lines(folder)
    assert [str(row["url"]).rpartition("/")[2] for row in rows] == [name for name in kept if name != "b"]
    places = {str(row["url"]).rpartition("/")[2]: row["warc"] for row in rows if row["warc"]}
    assert {name: place["offset"] for name, place in places.items()} == {  # type: ignore[index]
        name: offset for name, offset in records.items() if name not in ("b", "robots.txt")
    }
    (index,) = folder.glob("*.cdxj")
    indexed = [msgspec.json.decode(line.split(b" ", 2)[2]) for line in index.read_bytes().splitlines()]
    assert {line["url"].rpartition("/")[2]: int(line["offset"]) for line in indexed} == records
    assert not list(folder.glob("*.open"))


@either
@pytest.mark.parametrize("gone", ["", "a", "f", "b", "c", "d", "ad", "bcf", "ef", NAMES])
async def test_what_a_dead_writer_had_not_settled_is_taken_back(
    tmp_path: Path, compression: CompressionName, gone: str
) -> None:
    archive = await begun(tmp_path, compression)
    await die(archive, tmp_path)
    asked: list[tuple[Sequence[LeasedUrl], str]] = []

    async def disown(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        asked.append((urls, crawl))
        return [url.entry.url[-1] in gone for url in urls]

    await inherit(tmp_path, disown, compression=compression)
    ((urls, crawl),) = asked
    assert [url.entry.url.rpartition("/")[2] for url in urls] == ["first", *NAMES]  # it was settled some ms ago
    assert crawl == "news"
    check(tmp_path, gone)


@pytest.mark.parametrize("gone", ["first", "a", "firstad"])
async def test_a_writer_takes_back_what_redis_has_lost_since_it_was_settled(tmp_path: Path, gone: str) -> None:
    """Another replica keeps these pages. The groups before and after stay as they are, and the index agrees."""
    archive = await begun(tmp_path, "gzip")
    await archive.settled()
    lost = [name for name in ("first", *NAMES) if name in gone]
    await archive.take_back([leased(name) for name in lost])
    await archive.take_back([leased("f")])  # of a volume that was finished: too late
    await archive.stop()
    rows = [str(row["url"]).rpartition("/")[2] for row in readers.lines(tmp_path)]
    assert rows == [name for name in ("first", *NAMES) if name not in (*lost, "b")]
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    offsets = {record.offset for record in readers.by_fastwarc(file) if record.type in ("response", "revisit")}
    assert indexed_offsets(tmp_path) == offsets
    assert not readers.files(tmp_path, ".open")


def indexed_offsets(folder: Path) -> set[int]:
    (index,) = folder.glob("*.cdxj")
    return {int(msgspec.json.decode(line.split(b" ", 2)[2])["offset"]) for line in index.read_bytes().splitlines()}


async def test_files_that_are_shorter_than_their_journal_says_are_finished(tmp_path: Path) -> None:
    """A power failure may lose the end of one file and keep that of another."""
    await die(await begun(tmp_path, "gzip"), tmp_path)
    for path in readers.files(tmp_path, ".warc.gz.open"):
        os.truncate(path, 10)

    await inherit(tmp_path, disowning(NAMES))
    assert [line["url"] for line in readers.lines(tmp_path)] == ["https://site.test/first"]
    assert not readers.files(tmp_path, ".open")


@either
@pytest.mark.parametrize("gone", ["", "a", "f", "c", "ad", NAMES])
async def test_a_writer_takes_back_what_it_could_not_settle(
    tmp_path: Path, compression: CompressionName, gone: str
) -> None:
    archive = await begun(tmp_path, compression)
    await archive.settled([number for number, name in enumerate(NAMES) if name in gone])
    await archive.stop()
    check(tmp_path, gone)


async def test_what_was_taken_back_is_not_referred_to(tmp_path: Path) -> None:
    async with archiving(tmp_path) as archive:
        same = b"the same everywhere " * 100
        await archive.write([page(exchange("a", same)), page(exchange("b", same))], (), [leased("a"), leased("b")])
        await archive.settled([0])
        await archive.write([page(exchange("c", same))], (), [leased("c")])
        await archive.settled()
        await archive.write([page(exchange("d", same))], (), [leased("d")])
        await archive.settled()
    (file,) = readers.warc_files(tmp_path)
    found = {r.url[-1]: r for r in readers.by_warcio(file) if r.type in ("response", "revisit")}
    assert [(name, record.type) for name, record in found.items()] == [
        ("b", "response"),
        ("c", "response"),
        ("d", "revisit"),
    ]
    assert found["d"].headers["WARC-Refers-To"] == found["c"].headers["WARC-Record-ID"]


async def test_a_volume_of_nothing_but_unsettled_pages_is_removed(tmp_path: Path) -> None:
    async with archiving(tmp_path, pages=True) as archive:
        await archive.write([page(exchange("a", b"a"))], (), [leased("a")])
        await archive.settled([0])
    assert readers.files(tmp_path) == []


async def test_files_wait_for_a_store_that_is_away(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await write_group(archive)
    await die(archive, tmp_path)
    before = {path.name: path.read_bytes() for path in readers.files(tmp_path)}

    async def away(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        raise RedisAway("gone")

    await inherit(tmp_path, away)
    assert {path.name: path.read_bytes() for path in readers.files(tmp_path)} == before


async def test_nobody_finishes_files_while_somebody_else_asks_about_them(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.write([page(exchange("first", b"first"))])
    await write_group(archive)
    await die(archive, tmp_path)

    async def disown(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        await archived(tmp_path)
        return [True] * len(urls)

    await inherit(tmp_path, disown)
    check(tmp_path, NAMES)


@pytest.mark.parametrize("done", ["nothing", "half a line", "a line", "records cut", "records", "lines cut", "all"])
async def test_a_death_while_pages_are_taken_back_leaves_it_to_be_done_again(tmp_path: Path, done: str) -> None:
    """At any point. Redis is asked a second time only if its answer was not yet in the journal."""
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.write([page(exchange("first", b"first"))])
    await write_group(archive)
    await die(archive, tmp_path)
    (tail,), (warc,), (lines,) = (readers.files(tmp_path, f"{end}.open") for end in (JOURNAL, ".warc.gz", LINES))
    doubt = decoded(tail.read_bytes())
    assert isinstance(doubt, JournalEntry)
    rest = without(doubt, warc.read_bytes()[doubt.records_at :], lines.read_bytes()[doubt.lines_at :], {0, 3})
    steps = ["nothing", "half a line", "a line", "records cut", "records", "lines cut", "all"].index(done)
    if steps:
        line = encoded(rest)
        tail.write_bytes(tail.read_bytes() + (line if steps > 1 else line[: len(line) // 2]))
    if steps > 2:
        warc.write_bytes(warc.read_bytes()[: doubt.records_at] + (rest.records if steps > 3 else b""))
    if steps > 4:
        lines.write_bytes(lines.read_bytes()[: doubt.lines_at] + (rest.lines if steps > 5 else b""))

    async def disown(urls: Sequence[LeasedUrl], crawl: str) -> list[bool]:
        assert steps < 2
        return [url.entry.url[-1] in "ad" for url in urls]

    await inherit(tmp_path, disown)
    check(tmp_path, "ad")


@pytest.mark.parametrize("data", [b"", b"{", b"\0" * 50 + b"\n", b'{"type":"JournalEntry"}\n', b"\n"])
def test_a_tail_that_says_nothing_leaves_nothing_in_doubt(data: bytes) -> None:
    assert decoded(data) is None


def test_the_last_whole_line_of_a_tail_counts() -> None:
    entry = JournalEntry("news", 10, 20, [Share(leased("a"), 10, 30, 0)])
    rest = JournalRewrite(10, 20, b"\x1f\x8b\n", b"{}\n")
    assert decoded(encoded(entry)) == entry
    assert decoded(encoded(entry) + encoded(rest)) == rest
    assert decoded(encoded(entry) + encoded(rest)[:-1]) == entry


def test_what_a_rewrite_has_replaced_is_in_doubt_no_more() -> None:
    """Its places are those of other pages now."""
    before = JournalEntry("news", 100, 50, [Share(leased("a"), 100, 150, 0), Share(leased("b"), 150, 220, 1)])
    rest = JournalRewrite(100, 50, b"x" * 70, b"l" * 20)
    after = JournalEntry("news", 170, 70, [Share(leased("c"), 170, 260, 0)])
    assert decoded(encoded(before) + encoded(rest) + encoded(after)) == after


class Watching(Segment):
    """Reads the journal whenever something is appended here."""

    journal: Path
    seen: list[bytes]

    def append(self, data: bytes) -> None:
        self.seen.append(self.journal.read_bytes())
        super().append(data)


def test_the_journal_is_written_before_what_it_describes(tmp_path: Path) -> None:
    """A writer that dies in between leaves no page that the next one knows nothing about."""
    journal, warc, pages = (
        Segment.create(tmp_path / "a.journal"),
        Watching.create(tmp_path / "a"),
        Watching.create(tmp_path / "b"),
    )
    volume = Volume(0.0, False, journal, warc, pages)
    for segment in (warc, pages):
        assert isinstance(segment, Watching)
        segment.journal, segment.seen = tmp_path / "a.journal.open", []
    entry = JournalEntry("news", 0, 0, [])
    volume.append(b"records", b"lines", doubt=entry)
    assert [decoded(data) for data in (*warc.seen, *pages.seen)] == [entry, entry]


@pytest.mark.parametrize("may_repeat", [True, False])
def test_a_group_that_may_have_to_be_taken_back_stays_in_the_journal(tmp_path: Path, may_repeat: bool) -> None:
    """Its writer could not repeat that it was settled, because a node is away."""
    journal, pages = Segment.create(tmp_path / "a.journal"), Segment.create(tmp_path / "b")
    volume = Volume(0.0, False, journal, None, pages, may_repeat=lambda url: may_repeat)
    volume.append(b"", b"{}\n", doubt=JournalEntry("news", 0, 0, [Share(leased("a"), 0, 0, 0)]))
    for later in (1.0, 1.0 + KEPT_S, 1.0 + 2 * KEPT_S):
        volume.append(b"", b"", now=later)
    assert volume.take_back_urls([leased("a")]) == may_repeat
    assert (tmp_path / "b.open").read_bytes() == (b"" if may_repeat else b"{}\n")


class Groups:
    """A volume of small groups, in which each record names its page."""

    def __init__(self, folder: Path, away: str = "") -> None:
        self._warc, self._pages = Segment.create(folder / "v.warc.gz"), Segment.create(folder / "v.pages.jsonl")
        self.volume = Volume(
            0.0,
            False,
            Segment.create(folder / "v.journal"),
            self._warc,
            self._pages,
            may_repeat=lambda url: url.entry.url[-1] in away,
        )

    def write(self, names: str, now: float = 0.0) -> None:
        at, records, lines, shares = self._warc.size, b"", b"", []
        for number, name in enumerate(names):
            record = f"<{name}>".encode() * 5
            place = {"file": "v.warc.gz", "offset": at + len(records), "length": len(record)}
            shares.append(Share(leased(name), at + len(records), at + len(records) + len(record), number))
            lines += msgspec.json.encode({"url": name, "warc": place}) + b"\n"
            records += record
        self.volume.append(records, lines, (), JournalEntry("news", at, self._pages.size, shares), now)

    def check(self, names: str) -> None:
        records = (self._warc.path.with_name("v.warc.gz.open")).read_bytes()
        lines = (self._pages.path.with_name("v.pages.jsonl.open")).read_bytes().splitlines()
        places = [msgspec.json.decode(line) for line in lines]
        assert "".join(one["url"] for one in places) == names
        for one in places:
            at = one["warc"]["offset"]
            assert records[at : at + one["warc"]["length"]] == f"<{one['url']}>".encode() * 5
        assert len(records) == 15 * len(names)


@pytest.mark.parametrize("gone", ["a", "d", "e", "adh"])
@pytest.mark.parametrize("is_dead", [False, True])
def test_pages_are_taken_back_after_a_group_of_which_a_part_was_not_settled(
    tmp_path: Path, gone: str, is_dead: bool
) -> None:
    """By their writer, and by the one that finishes its files."""
    groups = Groups(tmp_path)
    for names in ("ab", "cd"):
        groups.write(names)
    groups.volume.take_back({0})
    for names in ("ef", "gh"):
        groups.write(names)
    if is_dead:
        groups.volume.leave()
        orphan = adopt_orphan(tmp_path / "v.journal.open")
        assert orphan is not None and orphan.doubt is not None
        orphan.take_back({number for number, one in enumerate(orphan.doubt.leased) if one.entry.url[-1] in gone})
        orphan.leave()
    else:
        assert groups.volume.take_back_urls([leased(name) for name in gone]) == len(gone)
    groups.check("".join(name for name in "abdefgh" if name not in gone))


def test_pages_are_taken_back_while_another_node_is_away(tmp_path: Path) -> None:
    """Its groups stay in the journal for longer than those of other nodes that were written later."""
    groups = Groups(tmp_path, away="a")
    for names, now in (("ab", 0.0), ("cd", 1.0), ("ef", 2.0), ("gh", 3.0 + KEPT_S)):
        groups.write(names, now)
    assert groups.volume.take_back_urls([leased("e")]) == 1
    groups.check("abcdfgh")


async def noted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive whose two groups were settled, which its journal says."""
    monkeypatch.setattr(archive_module, "MARKED_S", 0.0)
    archive = await begun(folder, "gzip")
    (lines,), (journal,) = (readers.files(folder, f"{end}.open") for end in (LINES, JOURNAL))
    assert last_group_begins(journal.read_bytes()) == len(lines.read_bytes().splitlines(keepends=True)[0])
    await archive.settled()
    await asyncio.to_thread(
        wait_until, lambda: last_group_begins(journal.read_bytes()) == lines.stat().st_size, "the note"
    )
    return archive


async def test_pages_are_taken_back_after_the_journal_has_said_that_they_are_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their writer, and by the one that finishes its files."""
    archive = await noted(tmp_path / "own", monkeypatch)
    await archive.take_back([leased("a"), leased("d")])
    await archive.stop()
    check(tmp_path / "own", "ad")
    await (await noted(tmp_path / "other", monkeypatch)).stop(is_in_doubt=True)
    await inherit(tmp_path / "other", disowning("ad"))
    check(tmp_path / "other", "ad")


async def test_a_group_in_doubt_is_not_called_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group before it was settled, and the journal was about to say so."""
    archive = await noted(tmp_path, monkeypatch)
    (lines,), (journal,) = (readers.files(tmp_path, f"{end}.open") for end in (LINES, JOURNAL))
    size = lines.stat().st_size
    monkeypatch.setattr(archive_module, "MARKED_S", 0.1)
    await archive.settled()
    await write_group(archive)
    await asyncio.sleep(0.2)
    assert last_group_begins(journal.read_bytes()) == size
    await archive.stop()


class Full(Segment):
    """Of what is appended, half gets into the file."""

    def append(self, data: bytes) -> None:
        super().append(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    entry = JournalEntry("news", 0, 0, [Share(leased("a"), 0, 0, 0)])
    journal, pages = Full.create(tmp_path / "a.journal"), Segment.create(tmp_path / "b")
    Segment.append(journal, encoded(entry))
    volume = Volume(0.0, False, journal, None, pages, doubt=entry)
    with pytest.raises(OSError, match="No space"):
        volume.mark_settled()
    assert (tmp_path / "a.journal.open").read_bytes() == encoded(entry)


@pytest.mark.parametrize("fault", [errno.EIO, errno.EROFS, errno.ESTALE, errno.ENOSPC])
@pytest.mark.parametrize("failing", ["write", "fdatasync", "all"])
async def test_storage_that_is_away_for_a_while_costs_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int, failing: str
) -> None:
    """With "all", not even what is left of the failed group can be removed."""
    archive = Archive(settings(tmp_path, fsync=True))
    await archive.start()
    groups = {name: [page(exchange(name, random.Random(name).randbytes(2_000)))] for name in "ab"}
    await archive.write(groups["a"], (), [leased("a")])
    await archive.settled()

    def fail(*_: object) -> int:
        raise OSError(fault, os.strerror(fault))

    with monkeypatch.context() as patched:
        for name in ("write", "fdatasync", "ftruncate") if failing == "all" else (failing,):
            patched.setattr(os, name, fail)
        with pytest.raises(SinkFull, match=re.escape(os.strerror(fault)) if fault != errno.ENOSPC else "no room"):
            await archive.write(groups["b"], (), [leased("b")])
    await archive.write(groups["b"], (), [leased("b")])
    await archive.settled()
    await archive.stop()
    archive = Archive(settings(tmp_path))
    await archive.start()  # finishes what was left
    await archive.stop()
    assert sorted(line["url"] for line in readers.lines(tmp_path)) == sorted(groups[name][0].url for name in "ab")


async def test_a_file_system_without_locks_is_refused_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(UserError, match=r"cannot be locked .* mount the file system with locks"):
        await Archive(settings(tmp_path)).start()
    assert not readers.files(tmp_path)


async def leave_four_pages(folder: Path) -> None:
    """Leave the files of a writer that has settled the pages "a" to "d", each in a group."""
    archive = Archive(settings(folder))
    await archive.start()
    for name in "abcd":
        await archive.write([page(exchange(name, random.Random(name).randbytes(2_000)))], (), [leased(name)])
        await archive.settled()
    await archive.stop(is_in_doubt=True)


@pytest.mark.parametrize("are_lines_cut", [False, True])
def test_records_that_a_power_failure_has_taken_are_counted(tmp_path: Path, typed: Typed, are_lines_cut: bool) -> None:
    """By the recovery, with the lines or else the journal, and by an export and an audit, with the lines."""
    out = tmp_path / "out"
    asyncio.run(leave_four_pages(out))
    ((warc,), (lines,)) = (readers.files(out, suffix) for suffix in (".warc.gz.open", LINES + ".open"))
    first, second = lines.read_bytes().splitlines(keepends=True)[:2]
    os.truncate(warc, msgspec.json.decode(second)["warc"]["offset"] + 99)
    if are_lines_cut:
        os.truncate(lines, len(first))
    done = typed("finish", str(out), "--offline", "--crawl", "news")
    count = 2 if are_lines_cut else 3  # the last page may not have been written, if it has no line
    assert done.code == 1
    assert f"{count} records of {warc.name.partition('.')[0]} are lost" in done.out
    assert f"{count} records of" in done.err
    if not are_lines_cut:
        for words in (("export", "out"), ("export", "out"), ("audit", "out"), ("export", "out", "--format", "wacz")):
            done = typed(*words, "--crawl", "news") if words[0] == "export" else typed(*words)
            assert done.code == 2, words
            assert "3 records named in" in done.err
