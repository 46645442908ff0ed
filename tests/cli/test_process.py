"""The program as a process: its descriptors, a full device, an early Ctrl-C, and what is frozen when it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT
from tests.typed import Typed

FULL = "error: cannot write the output: No space left on device\n"


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run `line`, in which `crawler` is the program, in a shell."""
    program = f"PYTHONPATH={ROOT} {sys.executable} -m crawler"
    return subprocess.run(
        ["bash", "-c", line.replace("crawler", program, 1)], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("words", ["--help", "--version", "config explain", "seed https://a.test/", "init"])
def test_a_full_device_is_told_of_in_one_line(tmp_path: Path, words: str) -> None:
    done = shell(tmp_path, f"crawler {words} > /dev/full")
    assert (done.returncode, done.stderr) == (1, FULL)


def test_a_reader_that_has_gone_is_no_error(tmp_path: Path) -> None:
    assert shell(tmp_path, "crawler config explain | head -1").stderr == ""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "2>&-", "<&-"])
def test_closed_descriptors_do_not_keep_a_command_from_starting(typed: Typed, tmp_path: Path, closed: str) -> None:
    assert shell(tmp_path, f"crawler seed https://a.test/ {closed}").returncode == 0
    assert "accepted 1" in typed("status").out


def test_an_early_interrupt_ends_the_program_without_a_traceback(tmp_path: Path) -> None:
    for after_s in (0.04, 0.08, 0.15, 0.3):
        command = [sys.executable, "-m", "crawler", "crawl"]
        environment = {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as running:
            time.sleep(after_s)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate()
        if "<frozen" not in err.partition("crawler/")[0]:  # the interpreter itself had not started yet
            assert "Traceback" not in err, after_s


def test_a_command_ends_with_its_code_without_freeing_what_it_has(tmp_path: Path) -> None:
    """What is registered for the exit is done before, and what is printed arrives."""
    script = (
        "import atexit, sys, crawler.__main__\n"
        "class Kept:\n    def __del__(self): print('freed')\n"
        "kept = Kept(); kept.me = kept\n"
        "atexit.register(print, 'done at the exit', flush=True)\n"
        "sys.stderr.write('half a line')\n"
        "sys.argv = ['crawler', 'status', '--redis', 'redis://127.0.0.1:1/0']\n"
        "crawler.__main__.main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (75, "done at the exit\n")
    assert done.stderr.startswith("half a line")
