"""What the machine's load explains is measured in the processes concerned, and excuses no more than that."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.chaos import standstills
from tests.chaos.cluster_report import feel
from tests.chaos.diary import Diary
from tests.chaos.node_faults import NodeDiary, NodeFault, NodeKind
from tests.chaos.standstills import Standstill
from tests.chaos.test_diary import record


async def test_time_is_noted_in_which_a_process_neither_ran_nor_was_asleep_on_purpose(tmp_path: Path) -> None:
    path = tmp_path / "r1"
    writing = asyncio.create_task(standstills.write(path))
    await asyncio.sleep(0.01)
    began = time.monotonic()
    time.sleep(0.5)  # noqa: ASYNC251 - stands for a machine that lets others run
    ended = time.monotonic()
    await asyncio.sleep(0.2)
    writing.cancel()
    (noted, *_) = standstills.read(path, "r1")
    assert noted.replica == "r1"
    assert began <= noted.begin < noted.end <= ended + 0.2
    assert noted.end - noted.begin > 0.3


async def test_work_of_the_process_itself_is_no_standstill(tmp_path: Path) -> None:
    path = tmp_path / "r1"
    writing = asyncio.create_task(standstills.write(path))
    await asyncio.sleep(0.01)
    began, used = time.monotonic(), time.process_time()
    while time.process_time() < used + 0.5:  # a defect: it blocks the event loop
        pass
    await asyncio.sleep(0.1)
    lasted_s = time.monotonic() - began
    writing.cancel()
    noted_s = sum(one.end - one.begin for one in standstills.read(path, "r1"))
    assert noted_s < lasted_s - 0.45


@pytest.mark.parametrize(
    ("replica", "begin", "end", "explained"),
    [
        ("r1", 101.0, 102.1, True),  # of a lease of 3 s, less than 2 are left
        ("", 101.0, 102.1, True),  # between it and Redis
        ("r1", 101.0, 101.9, False),  # 2.1 s must do
        ("r1", 97.0, 99.5, False),  # before the request
        ("r2", 101.0, 102.1, False),
    ],
)
def test_a_standstill_for_most_of_a_lease_explains_a_second_request(
    replica: str, begin: float, end: float, explained: bool
) -> None:
    diary = Diary(lease_s=3.0, standstills=[Standstill(replica, begin, end)])
    assert diary.explains(record("r1", 100.0, 100.1)) is explained


def test_a_stop_is_shorter_by_what_the_replica_stood_still() -> None:
    domains = {"a:1": frozenset({"other.test"}), "b:2": frozenset({"d.test"})}
    fault = NodeFault(NodeKind.KILL, "a:1", 100.0, 103.0, 106.0, domains)
    records = [record("r1", at, at + 0.1) for at in (99.5, 102.5)]
    found = NodeDiary(3.0, nodes=[fault], standstills=[Standstill("r1", 102.0, 102.4), Standstill("r2", 100.0, 102.0)])
    (felt,) = feel(records, found)
    assert felt.stops == {"b:2": pytest.approx(2.6)}
