"""Crawls whose names begin alike, and that share a folder."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crawler.observe.usage import read_files
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES
from crawler.sinks.items import kept_types, save_types
from crawler.sinks.lines import SETTINGS, crawls_in, files_of, has_lines


def write(folder: Path, crawl: str, replica: str, outcome: str = "done") -> Path:
    """Write a volume with one line, as the replica `replica` of `crawl` does."""
    stem = f"{crawl}-{replica}-20260101000000-00001"
    line = {"url": "https://a.test/", "outcome": outcome, "decoded_size": 10, "replica": replica, "items": {}}
    (folder / f"{stem}.warc.gz").write_bytes(bytes(100))
    path = folder / f"{stem}.pages.jsonl"
    path.write_text(json.dumps(line) + "\n")
    return path


@pytest.mark.parametrize(
    ("crawl", "replica", "of"),
    [
        ("news", "h-1", "news"),
        ("news-two", "h-1", "news-two"),
        ("news", "two-1", "news"),
        ("news.two", "h-1", "news.two"),
    ],
)
def test_output_is_found_for_its_own_crawl_only(tmp_path: Path, crawl: str, replica: str, of: str) -> None:
    write(tmp_path, crawl, replica)
    assert {name for name in ("news", "news-two", "news-two-h", "news.two") if has_lines(tmp_path, name)} == {of}


def test_a_plan_reads_the_output_of_its_own_crawl_only(tmp_path: Path) -> None:
    write(tmp_path, "news-two", "h-1")
    assert read_files([tmp_path], "news") is None
    own = write(tmp_path, "news", "h-2")
    read = read_files([tmp_path], "news")
    assert read is not None
    assert (read.pages, read.disk_bytes) == (1, 100 + own.stat().st_size)
    assert "linked_domains" not in read.workload  # its line has no links


def test_a_file_does_not_take_the_types_of_another_crawl(tmp_path: Path) -> None:
    save_types(tmp_path, "news", {"shop": {"price": "text"}})
    assert kept_types([write(tmp_path, "news-two", "h-1")], "shop") == {}
    assert kept_types([write(tmp_path, "news", "h-1")], "shop") == {"price": "text"}


@pytest.mark.parametrize("end", ["", ".open"])
def test_a_warc_file_is_of_the_crawl_of_the_lines_of_its_volume(tmp_path: Path, end: str) -> None:
    """The crawl news has a replica two-1, whose files are named like those of the crawl news-two. Without lines, names
    count."""
    for crawl in ("news", "news-two"):
        (tmp_path / f"{crawl}{SETTINGS}").touch()
    lines = write(tmp_path, "news", "two-1")
    (warc,) = tmp_path.glob("*.warc.gz")
    lines, warc = (path.rename(path.with_name(path.name + end)) for path in (lines, warc))
    assert crawls_in(tmp_path) == {"news"}
    assert files_of(tmp_path, (*WARC_SUFFIXES, LINES), "news") == [lines, warc]
    lines.unlink()
    assert files_of(tmp_path, WARC_SUFFIXES, "news-two") == [warc]


def test_the_files_of_a_crawl_are_found_in_a_large_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is listed once for its files, and once for its settings."""
    (tmp_path / f"news{SETTINGS}").touch()
    written = [write(tmp_path, "news", f"h-{number}") for number in range(30)]
    listed = []
    scandir, listdir = os.scandir, os.listdir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(path) or listdir(path))
    assert files_of(tmp_path, (LINES,), "news") == sorted(written)
    assert 0 < len(listed) <= 4
