"""When a crashed replica is replaced, when the setup is considered broken, and what the log says of it."""

from __future__ import annotations

import sys

import pytest

from crawler.app import supervisor
from crawler.app.supervisor import FIRST_PAUSE_S, GIVEN_UP_AFTER, HEALTHY_S, LONGEST_PAUSE_S, Crashes, Supervisor
from crawler.errors import TRY_LATER

SOON_S, LATE_S = 0.1, HEALTHY_S + 1


def test_as_many_crashes_right_after_the_start_as_given_end_the_replica() -> None:
    crashes = Crashes()
    pauses = [crashes.pause_s(SOON_S, 1) for _ in range(GIVEN_UP_AFTER)]
    assert pauses == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S, None]


def test_a_crash_after_a_healthy_run_does_not_count() -> None:
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
