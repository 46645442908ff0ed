"""An embedded server that is killed is started again by a process that uses it, and the crawl goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, Bench, Running, Web, bench, wait_until

pytestmark = pytest.mark.e2e

DELAY_S = 0.3
"""With twelve pages per domain, the crawl takes at least four seconds."""

RESTARTED = "embedded_valkey_restarted"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, seed=3, domains=16, pages=192, features=EVEN) as served:
        yield served


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    with bench(tmp_path, web, tables={"politeness": {"delay": DELAY_S}, "frontier": {"lease": 5.0}}) as made:
        yield made


def kill_server(crawler: Bench) -> int:
    """Kill the embedded server with SIGKILL. Returns its process ID."""
    pid = server_pid(crawler)
    os.kill(pid, signal.SIGKILL)
    return pid


def server_pid(crawler: Bench) -> int:
    return int((crawler.folder / "data" / "valkey.pid").read_text())


def times(text: str, running: list[Running]) -> int:
    return sum(one.err.count(text) for one in running)


def check_whole(crawler: Bench, web: Web, running: list[Running]) -> None:
    """The crawl ended, and each URL is in the archive once."""
    for one in running:
        done = one.wait()
        assert done.code == 0, done.err
    urls = [line["url"] for line in crawler.lines()]
    assert sorted(urls) == sorted(web.expected.urls | web.expected.denied)


@pytest.mark.long
def test_one_of_two_processes_starts_it_again_each_time(crawler: Bench, web: Web) -> None:
    crawler.seed()
    web.stop_at(40)
    running = [crawler.start("run", "--until-empty") for _ in range(2)]
    for kills, requests in ((1, 90), (2, None)):
        with web.stopped():
            kill_server(crawler)
            if requests:
                web.stop_at(requests)
        wait_until(lambda kills=kills: times(RESTARTED, running) == kills, "the restart")  # type: ignore[misc]
    check_whole(crawler, web, running)
    assert times(RESTARTED, running) == 2


@pytest.mark.long
def test_a_crawl_waits_for_a_server_that_cannot_start_again(crawler: Bench, web: Web) -> None:
    web.stop_at(40)
    running = [crawler.crawl()]
    with web.stopped():
        manifest = next((crawler.folder / "data" / "appendonlydir").glob("*.manifest"))
        good = manifest.read_text()
        manifest.write_text("nonsense\n")
        kill_server(crawler)
    wait_until(lambda: times("embedded_valkey_down", running), "the report")
    (line,) = [line for line in running[0].err.splitlines() if "embedded_valkey_down" in line]
    assert str(crawler.folder / "data" / "valkey.log") in line
    assert running[0].is_running
    manifest.write_text(good)
    wait_until(lambda: times(RESTARTED, running) == 1, "the restart")
    check_whole(crawler, web, running)
    assert times("embedded_valkey_down", running) == 1
