"""A full disk: the group waits, and is then written once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sinks import readers

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
