"""What a person and a program read in the log: times with their zone, levels, and progress where no terminal shows it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.cli.screen import Screen
from tests.e2e.harness import ROOT, Bench, Finished, Running, Web, bench, wait_until
from tests.typed import Typed

pytestmark = pytest.mark.e2e

OFTEN = {"CRAWLER_REPLICA__PROGRESS": "0.3"}


@pytest.fixture
def delay(request: pytest.FixtureRequest) -> float:
    """Seconds between two requests to a domain."""
    return float(getattr(request, "param", 0.02))


@pytest.fixture
def commands(tmp_path: Path, delay: float) -> Iterator[Bench]:
    """Commands on a web of 20 pages."""
    with (
        Web(tmp_path, domains=2, pages=20) as web,
        bench(tmp_path, web, tables={"replica": {"interval": 0.3}, "politeness": {"delay": delay}}) as commands,
    ):
        yield commands


def lines(done: Finished) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.err.splitlines()]


def crawl(commands: Bench, *words: str) -> Finished:
    return commands.start("crawl", "-f", str(commands.seeds), *words, environment=OFTEN).wait()


def test_a_crawl_without_a_terminal_logs_its_progress_as_json(commands: Bench) -> None:
    done = crawl(commands, "--log-format", "json")
    assert done.code == 0, done.err
    told = [line for line in lines(done) if line["event"] == "progress"]
    assert told
    assert {line["level"] for line in told} == {"info"}
    assert told[-1]["crawl"] == "crawl"
    assert told[-1]["pages"] >= told[0]["pages"]
    assert {"pages_per_s", "known", "left", "replicas"} <= told[-1].keys()
    assert not any("replica" in line for line in told), "replicas leave it to the crawl"
    moment = datetime.fromisoformat(told[0]["at"])
    assert moment.utcoffset() == timedelta(0)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told[0]["at"]), "RFC 3339"


@pytest.mark.parametrize("words", [("--quiet",), ("--log-level", "warning")])
def test_a_crawl_that_should_be_quiet_logs_no_progress(commands: Bench, words: tuple[str, ...]) -> None:
    done = crawl(commands, *words)
    assert done.code == 0, done.err
    assert "progress" not in done.err


def test_a_crawl_without_a_terminal_logs_at_once_what_it_waits_for(tmp_path: Path) -> None:
    words = ["crawl", "http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1", "--log-format", "json"]
    running = Running([sys.executable, "-m", "crawler", *words], tmp_path, "crawl", {"PYTHONPATH": str(ROOT)})
    try:
        wait_until(lambda: "waits_for" in running.err, "the reason why nothing is fetched")
    finally:
        running.send(signal.SIGTERM)
    told = [line for line in lines(running.wait()) if "waits_for" in line]
    assert re.search(
        r"robots.txt of http://127.0.0.1:\d+ is unreachable \(refused\), next try in", told[0]["waits_for"]
    )


def test_debug_logs_each_page(commands: Bench) -> None:
    done = crawl(commands, "--log-level", "debug", "--log-format", "json")
    assert done.code == 0, done.err
    pages = [line for line in lines(done) if line["event"] == "page"]
    assert {line["level"] for line in pages} == {"debug"}
    assert {line["url"] for line in pages} == {line["url"] for line in commands.lines()}
    assert {"robots", "committed", "domains_leased", "replica_started"} <= {line["event"] for line in lines(done)}


def test_a_reader_of_the_log_that_stalls_holds_up_nothing(commands: Bench, tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    commands.seed()
    words = ["run", "--until-empty", "--log-level", "debug", "--settings", str(commands.settings)]
    process = subprocess.Popen([sys.executable, "-m", "crawler", *words], cwd=tmp_path, stderr=theirs)
    assert process.wait(60) == 0
    os.close(theirs)
    assert len(os.read(ours, 65_536)) <= 4096
    os.close(ours)
    assert sum(line["outcome"] == "done" for line in commands.lines()) >= 10, commands.lines()


@pytest.mark.parametrize(
    "then",
    [
        "sys.stdin.read(1); time.sleep(1); logs.log(logging.INFO, 'last')",  # the reader goes on, so there is room again
        "pass",
    ],
)
def test_lines_for_which_there_is_no_room_are_counted(then: str) -> None:
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
    program = (
        "import logging, sys, time; from crawler import logs\n"
        "logs.QUEUED, logs.EXIT_S = 100, 30; logs.configure('json', 'info')\n"
        "for n in range(1000): logs.log(logging.INFO, 'page', url='x' * 100)\n"
        f"{then}"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=theirs, stdin=subprocess.PIPE) as process:
        os.close(theirs)
        with os.fdopen(ours) as log:
            first = [json.loads(log.readline()) for _ in range(120)]
            assert process.stdin is not None
            process.stdin.close()
            told = first + [json.loads(line) for line in log]
    lines = sum(line["event"] != "lines_dropped" for line in told)
    assert sum(line.get("lines_dropped", 0) for line in told) == 1000 + ("last" in then) - lines > 0


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_replicas_without_a_terminal_log_their_progress(commands: Bench, replicas: str) -> None:
    commands.seed()
    words = ("run", "--until-empty", "--replicas", replicas, "--log-format", "json")
    done = commands.start(*words, environment=OFTEN).wait()
    assert done.code == 0, done.err
    told = [line for line in lines(done) if line["event"] == "progress"]
    assert len({line["replica"] for line in told}) == int(replicas)
    assert {"pages", "pages_per_s", "shards", "in_flight"} <= told[0].keys()


@pytest.mark.parametrize("delay", [0.2], indirect=True)
@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_terminal_gets_the_progress_of_the_crawl(commands: Bench, tmp_path: Path, replicas: str) -> None:
    """One line for all replicas, which log none of their own."""
    commands.seed()
    ours, theirs = pty.openpty()
    place = ["--settings", str(commands.settings)]
    process = subprocess.Popen(
        [sys.executable, "-m", "crawler", "run", "--until-empty", "--replicas", replicas, *place],
        cwd=tmp_path,
        stderr=theirs,
        env={**os.environ, **OFTEN},
    )
    os.close(theirs)
    text = b""
    while chunk := _read(ours):
        text += chunk
    assert process.wait() == 0
    assert b"replica_stopped" in text
    told = [line for line in text.decode().splitlines() if " progress " in line]
    assert all(" progress crawl=crawl pages=" in line for line in told)
    assert any(f" replicas={replicas}" in line for line in told)
    assert not any(" replica=" in line for line in told)


def test_a_terminal_is_told_what_a_replica_waits_for(tmp_path: Path) -> None:
    """Without a setting, and at once."""
    words = ("--allow", "127.0.0.1", "--port", "1")
    seeded = Running([sys.executable, "-m", "crawler", "seed", "http://127.0.0.1:1/", *words], tmp_path, "seed", {})
    assert seeded.wait().code == 0
    with Screen(tmp_path, "run", columns=400) as screen:
        shown = screen.wait_for("waits_for=", "crawler retry 127.0.0.1")
        assert re.search(r"robots.txt of http://127.0.0.1:\d+ is unreachable \(refused\), next try in", shown)
        screen.press("\x03")
        assert screen.wait() == 0


@pytest.mark.parametrize("command", [("crawl",), pytest.param(("run", "--until-empty"), marks=pytest.mark.long)])
def test_a_terminal_is_told_which_host_does_not_answer(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Live in `crawler crawl`, and with the progress of `crawler run`."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        seed, port = f"http://127.0.0.1:{silent.getsockname()[1]}/", str(silent.getsockname()[1])
        words = [sys.executable, "-m", "crawler", "seed", seed, "--allow", "127.0.0.1", "--port", port]
        assert Running(words, tmp_path, "seed", {}).wait().code == 0
        with Screen(tmp_path, *command, columns=400) as screen:
            screen.wait_for("no complete response yet from 127.0.0.1")
            screen.press("\x03")
            screen.press("\x03")
            screen.wait()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux reports EIO at the end
        return b""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("crawl --log-level verbose", "replica.log_level = \"verbose\": must be 'debug', 'info', 'warning'"),
        ("seed --log-format jsn", "replica.log_format = \"jsn\": must be 'console' or 'json'"),
        ("run --log-level verbose", "replica.log_level = \"verbose\": must be 'debug', 'info', 'warning'"),
    ],
)
def test_a_bad_level_or_format_is_refused(typed: Typed, words: str, told: str) -> None:
    command, option, value = words.split()
    done = typed(command, option, value)
    assert done.code == 2
    assert f"{option}: {told}" in done.err
