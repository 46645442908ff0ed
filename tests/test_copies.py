"""A copy differs from a process that was started in nothing that a test sees."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.copies import Copy

PROGRAM = """
import json, os, random, signal, sys, uuid

def is_ours(descriptor):  # libffi keeps its own file open
    link = f"/proc/self/fd/{descriptor}"
    return os.path.lexists(link) and ".so" not in os.readlink(link)

def main():
    random_numbers = [random.random(), str(uuid.uuid4())]
    print(json.dumps({
        "words": sys.argv[1:], "folder": os.getcwd(), "variables": dict(os.environ), "input": sys.stdin.read(),
        "session": os.getsid(0) == os.getpid(), "signals": [str(signal.getsignal(n)) for n in signal.valid_signals()],
        "descriptors": sorted(filter(is_ours, os.listdir("/proc/self/fd"))), "modules": "pandas" in sys.modules,
    }))
    print(random_numbers, file=sys.stderr)
    return 3

if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tells.py").write_text(PROGRAM)
    (tmp_path / "waits.py").write_text("import time\ndef main(): time.sleep(1000)")
    (tmp_path / "in").write_text("what it reads")
    return tmp_path


def copied(folder: Path, *words: str) -> tuple[Copy, str, str]:
    """The process, what it has printed, and its errors, once it has ended."""
    with (folder / "in").open() as given, (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        made = Copy([*words], folder, {**os.environ, "NAME": "value"}, (given.fileno(), out.fileno(), err.fileno()))
    made.wait(60)
    return made, (folder / "out").read_text(), (folder / "err").read_text()


def test_a_copy_is_what_a_new_process_is(folder: Path) -> None:
    made, out, err = copied(folder, "tells", "one", "two words")
    with (folder / "in").open() as given:
        started = subprocess.run(
            [sys.executable, "-m", "tells", "one", "two words"],
            cwd=folder,
            env={**os.environ, "NAME": "value"},
            stdin=given,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )
    assert (made.returncode, json.loads(out)) == (started.returncode, json.loads(started.stdout))
    assert err != copied(folder, "tells")[2]  # random numbers


def test_a_copy_that_is_killed_has_the_exit_code_of_the_signal(folder: Path) -> None:
    with Path(os.devnull).open() as nothing:
        streams = nothing.fileno(), nothing.fileno(), 2
        copies = [Copy(["waits"], folder, os.environ, streams) for _ in range(3)]
    assert [one.poll() for one in copies] == [None] * 3
    with pytest.raises(subprocess.TimeoutExpired):
        copies[0].wait(0.01)
    copies[1].kill()
    copies[2].terminate()
    assert [one.wait(60) for one in copies[1:]] == [-signal.SIGKILL, -signal.SIGTERM]
    assert copies[0].poll() is None
    copies[0].kill()
    assert copies[0].wait(60) == -signal.SIGKILL
