"""Volumes: their names, when a new one begins, locking, groups that are settled later, and full disks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.errors import UserError
from crawler.hooks import PageHooks
from crawler.page import Content, Link, Page
from crawler.sinks.archive import LARGE_BODY, Archive, GroupEncoder
from crawler.sinks.files import Segment
from crawler.sinks.journal import JournalRewrite, decoded
from crawler.sinks.volume import Volume
from frontier.entries import Entry
from frontier.settle import LeasedUrl
from tests.sinks import readers
from tests.sinks.values import NOON, archived, archiving, disowning, exchange, inherit, page, settings


def noise(seed: int, size: int) -> bytes:
    """Bytes that do not compress."""
    return hashlib.shake_128(str(seed).encode()).digest(size)


async def test_a_volume_has_a_speaking_name_and_is_marked_while_it_is_open(tmp_path: Path) -> None:
    async with archiving(tmp_path, replica="host:1/2b", wall=lambda: NOON) as archive:
        await archive.write([page(exchange("a", b"a"))])
        name = "news-host_1_2b-20260921141320-00001"
        assert names(tmp_path) == [f"{name}.journal.open", f"{name}.pages.jsonl.open", f"{name}.warc.gz.open"]
        assert name in repr(archive)
    assert names(tmp_path) == [f"{name}.cdxj", f"{name}.pages.jsonl", f"{name}.warc.gz"]


async def test_a_full_volume_is_followed_by_the_next(tmp_path: Path) -> None:
    async with archiving(tmp_path, max_bytes=25_000) as archive:
        for number in range(10):
            await archive.write([page(exchange(f"{number}", noise(number, 9_000)))])
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
    async with archiving(tmp_path, max_age=60, wall=lambda: next(times)) as archive:
        for _ in range(4):
            await archive.write([page(exchange("a", b"a"))])
    assert [len(readers.by_warcio(file)) for file in readers.warc_files(tmp_path)] == [7, 7]


async def test_an_archive_that_was_given_nothing_leaves_nothing(tmp_path: Path) -> None:
    await archived(tmp_path)
    assert names(tmp_path) == []


async def test_what_is_written_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    async with archiving(tmp_path, fsync=True, wall=lambda: NOON) as archive:
        for number in range(3):
            await archive.write([page(exchange(f"{number}", b"body"))])
            _, lines, records = (tmp_path / name for name in names(tmp_path))
            assert lines.read_bytes().count(b"\n") == number + 1
            assert len(readers.by_warcio(records)) == 3 * number + 4


def many(first: int) -> list[Page]:
    """A large group of pages."""
    return [page(exchange(f"{number}", noise(number, 40_000))) for number in range(first, first + 80)]


async def test_groups_that_are_written_at_once_do_not_mix(tmp_path: Path) -> None:
    async with archiving(tmp_path, wall=lambda: NOON) as archive:
        await archive.write([page(exchange("first", b"first"))])
        await asyncio.gather(*(archive.write(many(first)) for first in (0, 100, 200)))
    (file,) = readers.warc_files(tmp_path)
    readers.check(file)
    stored = {record.url: record.offset for record in readers.by_fastwarc(file) if record.type == "response"}
    placed = {line["url"]: line["warc"]["offset"] for line in readers.lines(tmp_path)}  # type: ignore[index]
    assert len(placed) == 241
    assert placed == stored


async def test_pages_of_megabytes_stand_between_the_others_in_their_order(tmp_path: Path) -> None:
    sizes = [1, 2_000_000, 40_000, 1, 2_000_000, 2_000_000, 1]
    pages = [page(exchange(f"{number}", noise(number, size))) for number, size in enumerate(sizes)]
    async with archiving(tmp_path, wall=lambda: NOON) as archive:
        await archive.write(pages)
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
    async with archiving(tmp_path, replica="one") as one:
        await one.write([page(exchange("a", b"a"))])
        two = Archive(settings(tmp_path, replica="two"))
        await two.start()
        await two.write([page(exchange("b", b"b"))])
        assert [name.endswith(".open") for name in names(tmp_path)] == [True] * 6
        await one.write([page(exchange("c", b"c"))])
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


def linking(count: int, length: int) -> Page:
    """A page with `count` links of `length` characters."""
    return page(exchange("a", b"a"), links=tuple(Link(f"https://a.test/{n}".ljust(length, "b")) for n in range(count)))


@pytest.mark.parametrize(
    ("made", "is_ordinary"),
    [
        (linking(20_000, 40), True),
        (linking(512, 2_048), True),
        (linking(3_000, 2_000), False),  # records of 6 MB
        (linking(50_000, 40), False),
        (page(exchange("a", bytes(LARGE_BODY))), True),
        (page(exchange("a", bytes(LARGE_BODY + 1))), False),
    ],
)
def test_a_page_is_judged_by_the_size_of_its_records(tmp_path: Path, made: Page, is_ordinary: bool) -> None:
    assert GroupEncoder(settings(tmp_path), PageHooks()).is_expensive(made) == (not is_ordinary)


def test_only_texts_that_have_to_be_extracted_or_compared_are_work(tmp_path: Path) -> None:
    encoder = GroupEncoder(settings(tmp_path, text="text", near_duplicates="mark"), PageHooks())
    made = page(exchange("a", b"<p>text"), content_type="text/html")
    assert encoder.is_expensive(made)
    assert encoder.is_expensive(replace(made, content=Content(text="text", simhash=1, is_judged=True)))
    assert not encoder.is_expensive(replace(made, content=Content(text="text")))
    assert not encoder.is_expensive(replace(made, content_type="image/png"))


BODY = b"the same text " * 100


def leased(name: str) -> LeasedUrl:
    return LeasedUrl(0, "site.test", 1, Entry(f"https://site.test/{name}", "site.test"))


def kept_in(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.pages.jsonl"))
    return sorted(json.loads(line)["url"][-1] for file in files for line in file.read_text().splitlines())


async def write(archive: Archive, *names: str) -> frozenset[str]:
    """Write pages with the same body. Returns those that refer to an earlier record of it."""
    pages = [page(exchange(name, BODY)) for name in names]
    return (await archive.write(pages, (), [leased(name) for name in names])).duplicates


async def test_other_groups_are_written_meanwhile_and_do_not_refer_to_it(tmp_path: Path) -> None:
    async with archiving(tmp_path) as archive:
        await write(archive, "a", "b")
        settle_first = await archive.set_aside()
        assert await write(archive, "c") == frozenset()  # "a" may still be removed
        await archive.settled()
        assert await write(archive, "d") == {"https://site.test/d"}
        await archive.settled()
        await settle_first([0])
    assert kept_in(tmp_path) == ["b", "c", "d"]


@pytest.mark.parametrize("was_settled", [False, True])
async def test_a_later_start_decides_about_the_last_pages_and_about_groups_that_stayed_aside(
    tmp_path: Path, was_settled: bool
) -> None:
    """The server may have lost that the last pages were settled."""
    async with archiving(tmp_path / "aside") as archive:
        await write(archive, "a")
        await archive.set_aside()
        await write(archive, "b")
        await archive.settled()
    archive = Archive(settings(tmp_path / "last"))
    await archive.start()
    await write(archive, "a")
    await archive.settled()
    await archive.stop(is_in_doubt=True)
    assert (kept_in(tmp_path / "aside"), kept_in(tmp_path / "last")) == (["b"], [])
    for folder, kept in (("aside", ["b"]), ("last", [])):
        await inherit(tmp_path / folder, disowning("" if was_settled else "a"))
        assert kept_in(tmp_path / folder) == (["a", *kept] if was_settled else kept)


PROGRAM = [sys.executable, "-m", "tests.sinks.fill_disk"]


def check_outcome(folder: Path, said: str) -> None:
    refused, groups = map(int, said.split())
    assert refused > 0
    urls = [str(line["url"]) for line in readers.lines(folder)]
    assert urls == [f"https://site.test/{n}" for n in range(groups * 4)]
    stored = []
    for file in readers.warc_files(folder):
        readers.check(file)
        stored += [r.url for r in readers.by_warcio(file) if r.type == "response"]
    assert stored == urls


@pytest.mark.parametrize("links", [1, 400], ids=["full-at-the-warc-file", "full-at-the-json-lines"])
@pytest.mark.parametrize("fsync", ["", "fsync"])
def test_a_group_that_met_a_file_size_limit_is_written_once(tmp_path: Path, links: int, fsync: str) -> None:
    done = subprocess.run(
        [*PROGRAM, "quota", str(tmp_path), str(links), fsync], capture_output=True, text=True, check=True
    )
    check_outcome(tmp_path, done.stdout)


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare to mount a small disk")
@pytest.mark.parametrize("links", [1, 400], ids=["full-at-the-warc-file", "full-at-the-json-lines"])
def test_a_group_that_met_a_full_disk_is_written_once(tmp_path: Path, links: int) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    disk.mkdir()
    small = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    mount = f"mount -t tmpfs -o size=256k none '{disk}'"
    if subprocess.run([*small, mount], capture_output=True, check=False).returncode:
        pytest.skip("may not mount a small disk")
    # The disk lives as long as the shell that mounted it, so its files are copied out from within.
    script = f"{mount} && \"$@\" && cp -r '{disk}' '{kept}'"
    program = [*PROGRAM, "disk", str(disk), str(links), ""]
    done = subprocess.run([*small, script, "sh", *program], capture_output=True, text=True, check=True)
    check_outcome(kept, done.stdout)


@pytest.mark.parametrize("gone", ["*", "*.warc.gz.open"])
async def test_files_that_are_removed_while_they_are_written_are_reported(tmp_path: Path, gone: str) -> None:
    archive = Archive(settings(tmp_path / "out"))
    await archive.start()
    await archive.write([page(exchange("a", b"a"))])
    for path in (tmp_path / "out").glob(gone):
        path.unlink()
    with pytest.raises(UserError, match="somebody has removed it"):
        await archive.write([page(exchange("b", b"b"))])
    with contextlib.suppress(UserError):
        await archive.stop(is_in_doubt=True)


async def test_a_moved_folder_is_written_to_the_end(tmp_path: Path) -> None:
    """`mv` keeps the files, so nothing is lost."""
    async with archiving(tmp_path / "out") as archive:
        await archive.write([page(exchange("a", b"a"))])
        (tmp_path / "out").rename(tmp_path / "moved")
        await archive.write([page(exchange("b", b"b"))])
        (tmp_path / "moved").rename(tmp_path / "out")
    assert len(readers.lines(tmp_path / "out")) == 2
