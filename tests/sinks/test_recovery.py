"""The recovery of a file whose writer died at any byte."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.sinks.archive import Archive
from crawler.sinks.compression import COMPRESSIONS, CompressionName
from crawler.sinks.files import Segment
from crawler.sinks.lines import PageLines, Row
from crawler.sinks.recovery import recover
from crawler.sinks.warc import WarcRecords
from tests.sinks import readers
from tests.sinks.values import NOON, exchange, page, settings


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
LINES = json_lines()
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
    data = b"".join(LINES)
    for cut in range(len(data) + 1):
        assert recovered(tmp_path, "cut.pages.jsonl", data[:cut]) == whole_part(LINES, cut, header=0), cut


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
    asyncio.run(start_and_stop(Archive(settings(tmp_path))))
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


async def start_and_stop(archive: Archive) -> None:
    await archive.start()
    await archive.stop()
