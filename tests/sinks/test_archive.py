"""Volumes: their names, when a new one begins, and locking."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import pytest

from crawler.errors import UserError
from crawler.page import Page
from crawler.sinks.archive import Archive
from crawler.sinks.files import Segment
from crawler.sinks.journal import JournalRewrite, decoded
from crawler.sinks.volume import Volume
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings


def noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


async def test_a_volume_has_a_speaking_name_and_is_marked_while_it_is_open(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, replica="host:1/2b"), wall=lambda: NOON)
    await archive.start()
    await archive.write([page(exchange("a", b"a"))])
    name = "news-host_1_2b-20260921141320-00001"
    assert names(tmp_path) == [f"{name}.journal.open", f"{name}.pages.jsonl.open", f"{name}.warc.gz.open"]
    assert name in repr(archive)
    await archive.stop()
    assert names(tmp_path) == [f"{name}.cdxj", f"{name}.pages.jsonl", f"{name}.warc.gz"]


async def test_a_full_volume_is_followed_by_the_next(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, max_bytes=25_000))
    await archive.start()
    for number in range(10):
        await archive.write([page(exchange(f"{number}", noise(number, 9_000)))])
    await archive.stop()
    files = readers.warc_files(tmp_path)
    assert [file.name[-13:] for file in files] == [f"{serial:05}.warc.gz" for serial in range(1, 5)]
    for file in files:
        readers.check(file)
        assert file.stat().st_size < 25_000 + 10_000
        assert readers.by_warcio(file)[0].headers["WARC-Filename"] == file.name
    placed = [(str(line["url"]), line["warc"]["file"]) for line in readers.lines(tmp_path)]  # type: ignore[index]
    stored = [(r.url, file.name) for file in files for r in readers.by_warcio(file) if r.type == "response"]
    assert placed == stored


async def test_an_old_volume_is_followed_by_the_next(tmp_path: Path) -> None:
    times = iter([NOON, NOON + 59, NOON + 60, NOON + 61])
    archive = Archive(settings(tmp_path, max_age_s=60), wall=lambda: next(times))
    await archive.start()
    for _ in range(4):
        await archive.write([page(exchange("a", b"a"))])
    await archive.stop()
    assert [len(readers.by_warcio(file)) for file in readers.warc_files(tmp_path)] == [7, 7]


async def test_an_archive_that_was_given_nothing_leaves_nothing(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.stop()
    assert names(tmp_path) == []


async def test_what_is_written_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path, fsync=True), wall=lambda: NOON)
    await archive.start()
    for number in range(3):
        await archive.write([page(exchange(f"{number}", b"body"))])
        _, lines, records = (tmp_path / name for name in names(tmp_path))
        assert lines.read_bytes().count(b"\n") == number + 1
        assert len(readers.by_warcio(records)) == 3 * number + 4
    await archive.stop()


async def test_groups_keep_their_order_though_nobody_waits_for_them(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            tasks.create_task(archive.write([page(exchange(f"{number}", b"body"))]))
    await archive.stop()
    assert [line["url"] for line in readers.lines(tmp_path)] == [f"https://site.test/{n}" for n in range(20)]


def many(first: int) -> list[Page]:
    """A large group of pages."""
    return [page(exchange(f"{number}", noise(number, 40_000))) for number in range(first, first + 80)]


async def test_groups_that_are_written_at_once_do_not_mix(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path), wall=lambda: NOON)
    await archive.start()
    await archive.write([page(exchange("first", b"first"))])
    await asyncio.gather(*(archive.write(many(first)) for first in (0, 100, 200)))
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    stored = {record.url: record.offset for record in readers.by_fastwarc(file) if record.type == "response"}
    placed = {line["url"]: line["warc"]["offset"] for line in readers.lines(tmp_path)}  # type: ignore[index]
    assert len(placed) == 241
    assert placed == stored


async def test_pages_of_megabytes_stand_between_the_others_in_their_order(tmp_path: Path) -> None:
    sizes = [1, 2_000_000, 40_000, 1, 2_000_000, 2_000_000, 1]
    pages = [page(exchange(f"{number}", noise(number, size))) for number, size in enumerate(sizes)]
    archive = Archive(settings(tmp_path), wall=lambda: NOON)
    await archive.start()
    await archive.write(pages)
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    stored = [record.url for record in readers.by_fastwarc(file) if record.type == "response"]
    assert stored == [one.url for one in pages]


async def test_a_cancelled_write_is_carried_out_whole_or_not_at_all(tmp_path: Path) -> None:
    archive, cancelled = Archive(settings(tmp_path)), 0
    await archive.start()
    while cancelled < 20:
        writing = asyncio.create_task(archive.write([page(exchange(f"{cancelled}", noise(cancelled, 1 << 18)))]))
        await asyncio.sleep(0)
        cancelled += writing.cancel()  # it may have been carried out by now
        await asyncio.wait([writing])
    await archive.write([page(exchange("last", b"last"))])
    await archive.stop()
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    stored = [record.url for record in readers.by_warcio(file) if record.type == "response"]
    assert [line["url"] for line in readers.lines(tmp_path)] == stored


async def test_two_replicas_share_a_folder(tmp_path: Path) -> None:
    one = Archive(settings(tmp_path, replica="one"))
    await one.start()
    await one.write([page(exchange("a", b"a"))])
    two = Archive(settings(tmp_path, replica="two"))
    await two.start()
    await two.write([page(exchange("b", b"b"))])
    assert [name.endswith(".open") for name in names(tmp_path)] == [True] * 6
    await one.write([page(exchange("c", b"c"))])
    await one.stop()
    await two.stop()
    assert sorted(str(line["url"])[-1] for line in readers.lines(tmp_path)) == ["a", "b", "c"]


async def test_a_folder_that_cannot_be_had_is_the_operators_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    archive = Archive(settings(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write in .*file"):
        await archive.start()
    await archive.stop()


def test_a_volume_that_cannot_be_cut_back_is_broken_and_left_to_a_recovery(tmp_path: Path) -> None:
    segment, tail = (Segment.create(tmp_path / name) for name in ("a.warc.gz", "a.journal"))
    volume = Volume(opened_at=NOON, fsync=False, journal=tail, warc=segment)
    volume.append(b"whole", b"")
    segment.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        volume.append(b"half", b"")
    assert volume.is_broken
    assert (tmp_path / "a.warc.gz.open").read_bytes() == b"whole"
    # Then nothing of the group is kept here, since it will be written elsewhere.
    assert decoded((tmp_path / "a.journal.open").read_bytes()) == JournalRewrite(5, 0, b"", b"")


def test_a_finished_file_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.warc.gz").write_bytes(b"finished")
    with pytest.raises(FileExistsError):
        Segment.create(tmp_path / "a.warc.gz")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
