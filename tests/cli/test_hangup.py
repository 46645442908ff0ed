"""What is left when the terminal is closed, or the command that shows a crawl is killed: nothing runs on unseen."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.screen import Screen
from tests.e2e.harness import ROOT
from tests.site import Request, Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

PATIENCE_S = 180.0


def endless(request: Request) -> str | None:
    """Each page links to the next, and has words of its own: others would be put off."""
    number = request.path.removeprefix("/") or "0"
    words = hashlib.sha256(number.encode()).hexdigest().replace("0", " ")
    return f"<p>{words}</p><a href=/{int(number) + 1}>next</a>" if number.isdecimal() else None


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with Site(endless) as site:
        (tmp_path / "c.toml").write_text(
            f'[fetch]\nhost_map = ["*.test=127.0.0.1:{site.port}"]\n[politeness]\ndelay = 0.1\n[replica]\ngrace = 1.0\n'
        )
        yield tmp_path


def words(folder: Path) -> tuple[str, ...]:
    return "crawl", "http://a.test/", "-s", "c.toml", "--data-dir", str(folder / ".crawler"), "--replicas", "2"


def running(folder: Path) -> list[str]:
    """The command lines of processes that work in `folder`, or name it: the command, its replicas and the store."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            works_there = (process / "cwd").readlink().is_relative_to(folder)
        except OSError:  # it has just ended
            continue
        if line and (works_there or str(folder) in line):
            found.append(line)
    return found


def wait_until_nothing_runs(folder: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while left := running(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_a_closed_terminal_stops_the_crawl(folder: Path) -> None:
    screen = Screen(folder, *words(folder))
    screen.wait_for("done 3")
    screen.close()  # the kernel sends SIGHUP to the session
    os.waitpid(screen.pid, 0)
    wait_until_nothing_runs(folder)
    assert not list((folder / "crawl-out").glob("*.open"))  # it was stopped, not cut off


def test_replicas_stop_when_the_command_that_shows_them_is_killed(folder: Path) -> None:
    with Screen(folder, *words(folder)) as screen:
        screen.wait_for("done 3")
        os.kill(screen.pid, signal.SIGKILL)
        wait_until_nothing_runs(folder)
    assert not list((folder / "crawl-out").glob("*.open"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("made", ["server.lock", "valkey.log", "valkey.pid", "valkey.sock"])
def test_a_signal_while_the_store_starts_leaves_no_server(tmp_path: Path, number: int, made: str) -> None:
    """As soon as the server has made one of its files."""
    command = [sys.executable, "-m", "crawler", "seed", "https://a.test/"]
    with subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}) as starting:
        while not (tmp_path / ".crawler" / made).exists():
            assert starting.poll() is None
            time.sleep(0.001)
        starting.send_signal(number)
    assert starting.returncode in (128 + number, 0)
    wait_until_nothing_runs(tmp_path)


def test_nohup_keeps_a_crawl_running(folder: Path) -> None:
    crawl = subprocess.Popen(
        ["nohup", sys.executable, "-m", "crawler", *words(folder)],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(running(folder)) < 4:  # the command, two replicas, the store
            assert time.monotonic() < deadline
            time.sleep(0.1)
        crawl.send_signal(signal.SIGHUP)
        time.sleep(2)
        assert crawl.poll() is None
        assert len(running(folder)) >= 4
    finally:
        crawl.terminate()
        assert crawl.wait(PATIENCE_S) == 0
    wait_until_nothing_runs(folder)
