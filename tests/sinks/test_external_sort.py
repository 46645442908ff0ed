"""Lines are sorted, and few of them are in memory at a time."""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.sinks.external_sort import SortedLines

LINES = st.lists(st.binary(max_size=4).map(lambda data: data.replace(b"\n", b"") + b"\n"), max_size=40)


@given(st.lists(LINES, max_size=4), st.integers(1, 9))
def test_what_was_added_comes_out_sorted(parts: list[list[bytes]], run: int) -> None:
    with closing(SortedLines(Path(tempfile.gettempdir()), run)) as lines:
        for part in parts:
            lines.add(part)
        expected = sorted(line for part in parts for line in part)
        assert list(lines.merged()) == expected
        assert bool(lines) == bool(expected)


def test_the_file_has_no_name(tmp_path: Path) -> None:
    with closing(SortedLines(tmp_path, 2)) as lines:
        lines.add([b"b\n", b"a\n", b"c\n"])
        assert repr(lines) == "<SortedLines lines=1 runs=1>"
        assert list(tmp_path.iterdir()) == []


def test_where_no_file_can_be_written_they_do_not_grow_if_they_may_not(tmp_path: Path) -> None:
    with closing(SortedLines(tmp_path / "gone", 2, may_grow=False)) as lines:
        lines.add([b"b\n"])
        with pytest.raises(FileNotFoundError):
            lines.add([b"a\n"])


def test_where_no_file_can_be_written_they_stay_in_memory(tmp_path: Path) -> None:
    with closing(SortedLines(tmp_path / "gone", 2)) as lines:
        lines.add([b"b\n", b"a\n", b"c\n"])
        (tmp_path / "gone").mkdir()
        lines.add([b"d\n", b"0\n"])
        assert repr(lines) == "<SortedLines lines=1 runs=1>"
        assert list(lines.merged()) == [b"0\n", b"a\n", b"b\n", b"c\n", b"d\n"]


def test_a_run_half_written_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """A file that accepts three bytes and then fails, until it is repaired."""

        def __init__(self) -> None:
            self.file = tempfile.TemporaryFile(dir=tmp_path, buffering=0)  # noqa: SIM115 - goes with the test
            self.room = 3

        def write(self, data: memoryview) -> int:
            if self.room == 0:
                raise OSError(28, "No space left on device")
            taken = self.file.write(data[: self.room])
            self.room -= taken
            return taken

        def __getattr__(self, name: str) -> object:
            return getattr(self.file, name)

    full = Full()
    monkeypatch.setattr("crawler.sinks.external_sort.tempfile.TemporaryFile", lambda **_: full)
    with closing(SortedLines(tmp_path, 2)) as lines:
        lines.add([b"bb\n", b"aa\n"])
        assert repr(lines) == "<SortedLines lines=2 runs=0>"
        full.room = 100
        lines.add([b"c\n", b"A\n"])
        assert repr(lines) == "<SortedLines lines=0 runs=1>"
        assert list(lines.merged()) == [b"A\n", b"aa\n", b"bb\n", b"c\n"]


def test_memory_does_not_grow(tmp_path: Path) -> None:
    def made() -> Iterator[bytes]:
        random = Random(1)
        for _ in range(60_000):
            yield random.randbytes(175).hex().encode() + b"\n"

    gc.collect()
    tracemalloc.start()
    try:
        with closing(SortedLines(tmp_path)) as lines:
            lines.add(made())
            before = b""
            for line in lines.merged():
                assert before <= line
                before = line
            assert tracemalloc.get_traced_memory()[1] < 8_000_000  # of 21 MB
    finally:
        tracemalloc.stop()
