"""Open files are read up to their last complete record, whether their writer is alive or was killed."""

from __future__ import annotations

import os
import random
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from crawler.audit.check import audit
from crawler.audit.records import read_archive
from crawler.cli.main import app
from crawler.errors import UserError
from crawler.sinks.archive import Archive
from crawler.sinks.compression import COMPRESSIONS, CompressionName
from crawler.sinks.files import LINES, finished_path, open_and_finished, open_either
from crawler.sinks.lines import newest_line
from crawler.sinks.reader import complete_part, read_rows
from tests.audit.test_check import RULES
from tests.sinks import readers
from tests.sinks.test_recovery import RECORDS, durable_before_death
from tests.sinks.values import exchange, page, settings

either = pytest.mark.parametrize("compression", COMPRESSIONS)


def type_words(*words: str) -> tuple[str, str]:
    """What a command writes to standard output and standard error."""
    done = CliRunner().invoke(app, [*words], catch_exceptions=False, env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def exported(folder: Path, out: Path) -> tuple[list[str], str]:
    """The URLs that `crawler export` writes to `out`, and what it writes to standard error."""
    _, err = type_words("export", str(folder), "--out", str(out), "--processes", "1")
    return [str(line["url"]) for line in readers.lines(out)], err


@either
def test_a_file_cut_at_any_byte_is_read_up_to_its_last_complete_record(
    tmp_path: Path, compression: CompressionName
) -> None:
    path, data = tmp_path / f"cut{COMPRESSIONS[compression].suffix}.open", b"".join(RECORDS[compression])
    ends = [sum(map(len, RECORDS[compression][:count])) for count in range(len(RECORDS[compression]) + 1)]
    for cut in range(0, len(data) + 1, 7):
        path.write_bytes(data[:cut])
        with complete_part(path) as part:
            assert part.size == max(end for end in ends if end <= cut)
        urls = [row.page.url for row in read_rows(path)]
        assert urls == [f"https://site.test/{name}" for name, end in zip("abc", ends[3::2], strict=True) if end <= cut]


@either
def test_the_files_of_a_killed_writer_are_read_by_all_commands(tmp_path: Path, compression: CompressionName) -> None:
    # Given the files of a killed process, with half a record and half a line at their ends,
    folder = tmp_path / "crawl"
    folder.mkdir()
    durable = durable_before_death(folder, compression, groups=random.Random(7).randint(3, 8))
    assert not readers.warc_files(folder)
    (warc,) = folder.glob("*.warc.*.open")
    (rows,) = folder.glob(f"*{LINES}.open")
    for path in (warc, rows):
        with path.open("ab") as file:
            file.write(path.read_bytes()[:150])
    # Then `export` and `extract` find all durable pages,
    urls, err = exported(folder, tmp_path / "out")
    assert durable <= set(urls)
    assert len(set(urls)) == len(urls)
    assert f"crawler finish {folder}" in err
    out, _ = type_words("extract", str(finished_path(warc)))
    found = [msgspec.json.decode(line) for line in out.splitlines()]
    assert [line["url"] for line in found] == urls
    # their places are those in the finished file,
    assert {line["warc"]["file"] for line in found} == {finished_path(warc).name}
    # an audit reads all of them and nothing else,
    judged = audit(read_archive(folder), RULES)
    assert (judged.requests, judged.unread) == (len(urls), 0)
    # and so does the search of `crawler why`.
    last = max(durable, key=lambda url: int(url.rpartition("/")[2]))
    line = newest_line(folder, last, settings(folder).crawl)
    assert line is not None
    assert line["url"] == last


async def test_what_was_exported_of_an_open_file_is_replaced_when_it_is_finished(tmp_path: Path) -> None:
    folder, out = tmp_path / "crawl", tmp_path / "out"
    archive = Archive(settings(folder))
    await archive.start()
    await archive.write([page(exchange("a", b"<p>a"))])
    assert exported(folder, out)[0] == ["https://site.test/a"]
    await archive.write([page(exchange("b", b"<p>b"))])
    both = ["https://site.test/a", "https://site.test/b"]
    assert exported(folder, out)[0] == both
    await archive.stop()
    urls, err = exported(folder, out)
    assert urls == both
    assert "crawler finish" not in err
    assert [path.name for path in readers.files(out) if ".open" in path.name] == []


async def test_a_file_that_was_finished_after_it_was_listed_is_read(tmp_path: Path) -> None:
    archive = Archive(settings(tmp_path))
    await archive.start()
    await archive.write([page(exchange("a", b"<p>a"))])
    (warc,) = open_and_finished(tmp_path, (".warc.gz",))
    (rows,) = open_and_finished(tmp_path, (LINES,))
    await archive.stop()
    assert [row.page.url for row in read_rows(warc)] == ["https://site.test/a"]
    fd = open_either(rows)
    assert os.pread(fd, 100, 0).startswith(b'{"url":"https://site.test/a"')
    os.close(fd)


def test_a_folder_without_warc_files_is_named(tmp_path: Path) -> None:
    for words in (["export", str(tmp_path)], ["extract", str(tmp_path)], ["audit", str(tmp_path / "none")]):
        done = CliRunner().invoke(app, words)
        assert isinstance(done.exception, UserError)
        assert str(tmp_path) in str(done.exception)
