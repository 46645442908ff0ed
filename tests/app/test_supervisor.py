"""Several replicas on one machine: when a crashed one is replaced, what the log says of it, and where they listen."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from crawler.app import supervisor
from crawler.app.supervisor import (
    FIRST_PAUSE_S,
    GIVEN_UP_AFTER,
    HEALTHY_S,
    LONGEST_PAUSE_S,
    Crashes,
    Supervisor,
    check_free,
    count_up,
    supervise,
)
from crawler.errors import TRY_LATER, UserError
from crawler.settings.load import Settings
from crawler.settings.tables import ReplicaTable
from tests.e2e.harness import Running, wait_until
from tests.ports import free_port
from tests.typed import Typed

SOON_S, LATE_S = 0.1, HEALTHY_S + 1


def test_as_many_crashes_right_after_the_start_as_given_end_the_replica() -> None:
    """One after a healthy run does not count."""
    crashes = Crashes()
    assert crashes.pause_s(SOON_S, 1) == FIRST_PAUSE_S
    assert crashes.pause_s(LATE_S, 1) == FIRST_PAUSE_S
    pauses = [crashes.pause_s(SOON_S, 1) for _ in range(GIVEN_UP_AFTER)]
    assert pauses == [2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, 8 * FIRST_PAUSE_S, None]


def test_a_replica_that_waits_for_redis_is_started_for_ever() -> None:
    crashes = Crashes()
    pauses = [crashes.pause_s(SOON_S, TRY_LATER) for _ in range(20)]
    assert pauses[-1] == LONGEST_PAUSE_S
    assert None not in pauses


async def test_the_log_says_whether_a_killed_replica_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    killed = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
    assert await Supervisor(killed, [{}]).run() == 1
    fields = [vars(record)["fields"] for record in caplog.records if record.message == "replica_killed"]
    assert [said["signal"] for said in fields] == ["SIGKILL"] * GIVEN_UP_AFTER
    results = [said["result"] for said in fields]
    assert set(results[:-1]) == {"another one is started"}
    assert results[-1] == "the setup is considered broken, and all replicas are stopped"


async def test_replicas_that_cannot_be_started_are_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    broken = Supervisor(["/missing/python"], [{}, {}])
    async with broken.prepared():
        assert await broken.run() == 1
    assert {record.message for record in caplog.records} == {"replica_not_started"}


CRAWLER = [sys.executable, "-m", "crawler"]


@pytest.mark.parametrize(
    ("address", "second"),
    [
        ("9410", "9411"),
        ("127.0.0.1:9410", "127.0.0.1:9411"),
        ("[::1]:9410", "[::1]:9411"),
        (":9410", ":9411"),
        ("127.0.0.1:0", "127.0.0.1:0"),
        ("", ""),
        ("10.0.0.7", "10.0.0.7"),
        ("fd00::1:7", "fd00::1:7"),
        ("crawl.example:80", "crawl.example:81"),
    ],
)
def test_ports_count_up(address: str, second: str) -> None:
    assert count_up(address, 2) == [address, second]


def test_there_must_be_enough_ports() -> None:
    with pytest.raises(UserError, match="the last of 3 replicas needs port 65537"):
        count_up("127.0.0.1:65535", 3)
    with pytest.raises(UserError, match="the last port is 65535"):
        check_free(["127.0.0.1:70000"])


def test_a_port_in_use_stops_the_command_before_anything_is_created(typed: Typed, tmp_path: Path) -> None:
    with socket.socket() as taken:
        while not (port := taken.getsockname()[1]):
            with suppress(OSError):  # only the one below is known to be free
                taken.bind(("127.0.0.1", free_port() + 1))
        taken.listen()
        done = typed("crawl", "http://a.test/", "--replicas", "2", "--listen", str(port - 1))
    assert done.code == 2
    assert f"cannot listen at {port}" in done.err
    assert "choose another --listen" in done.err
    assert not (tmp_path / ".crawler").exists()


@pytest.mark.e2e
def test_each_replica_of_run_serves_its_page_at_a_port_of_its_own(typed: Typed, tmp_path: Path) -> None:
    typed("seed", "http://a.test/")
    typed("pause")
    port = free_port()
    words = [*CRAWLER, "run", "--replicas", "2", "--listen", f"127.0.0.1:{port}"]
    running = Running(words, tmp_path, "run", {})
    try:
        for one in (port, port + 1):
            wait_until(lambda one=one: f"address=127.0.0.1:{one}" in running.err, f"port {one}")  # type: ignore[misc]
            with urllib.request.urlopen(f"http://127.0.0.1:{one}/healthz", timeout=20) as answer:
                assert answer.status == 200
    finally:
        typed("stop")
    assert running.wait().code == 0


@pytest.mark.e2e
def test_crawl_prints_the_addresses_that_it_was_given(tmp_path: Path) -> None:
    port = free_port()
    seed = ["http://127.0.0.1:1/", "--allow", "127.0.0.1", "--port", "1"]
    words = [*CRAWLER, "crawl", *seed, "--replicas", "2", "--listen", str(port), "--quiet"]
    done = Running(words, tmp_path, "crawl", {"CRAWLER_POLITENESS__TRIES": "1"})
    wait_until(lambda: len(re.findall(r"live page: http://127.0.0.1:(\d+)/", done.err)) == 2, "two addresses")
    assert [int(one) for one in re.findall(r"live page: http://127.0.0.1:(\d+)/", done.err)] == [port, port + 1]
    done.send(signal.SIGTERM)
    done.wait()


@pytest.mark.parametrize(("replicas", "names"), [(1, ["big"]), (2, ["big-1", "big-2"])])
def test_each_replica_has_a_name_that_stays(replicas: int, names: list[str]) -> None:
    settings = Settings(replica=ReplicaTable(name="big"))
    environments = supervise("news", settings, replicas, until_empty=False)._environments
    assert [json.loads(one["CRAWLER_REPLICA"])["name"] for one in environments] == names
