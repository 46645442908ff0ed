"""A second request is excused only by a fault of the replica that made the first one, between asking and settling."""

from __future__ import annotations

import random

import pytest

from tests.chaos.diary import Diary, Kind
from tests.chaos.plan import Options, plan
from tests.simweb.server import Record


def record(replica: str, start: float, end: float) -> Record:
    return Record(
        *(start, end, start, "127.0.0.1:80", "d.test", "d.test", "GET", "/", 200, None, 1),
        agent=f"peercrawl/1 (+{replica})",
    )


@pytest.mark.parametrize(
    ("kind", "replica", "begin", "end", "explained"),
    [
        (Kind.KILL, "r1", 100.5, 100.5, True),  # during the request
        (Kind.KILL, "r1", 101.2, 101.2, True),  # before its settling
        (Kind.KILL, "r1", 110.0, 110.0, False),  # long after it
        (Kind.KILL, "r1", 90.0, 90.0, False),  # before it was made
        (Kind.KILL, "r2", 100.5, 100.5, False),  # another replica's
        (Kind.KILL, "r11", 100.5, 100.5, False),
        (Kind.RESTART, "", 100.5, 100.6, True),  # everybody's
        (Kind.SWALLOW, "r1", 95.0, 99.0, True),  # Redis was away while its leases lasted
        (Kind.LEAVE, "r1", 100.5, 100.6, False),  # nothing may be lost by these
        (Kind.JOIN, "r1", 100.5, 100.6, False),
        (Kind.DELAY, "r1", 100.5, 100.6, False),
    ],
)
def test_what_a_fault_excuses(kind: Kind, replica: str, begin: float, end: float, explained: bool) -> None:
    diary = Diary(lease_s=3.0)
    diary.note(kind, replica, begin, end)
    assert diary.explains(record("r1", 100.0, 101.0)) is explained


def test_a_plan_has_all_its_faults_in_order_and_is_drawn_from_its_seed() -> None:
    options = Options(100.0, kills=20, restarts=3, stops=4, proxy_faults=9, changes=5, replicas=4, domains=9, pages=90)
    planned = plan(options, random.Random(1))
    assert planned == plan(options, random.Random(1))
    assert [fault.at for fault in planned] == sorted(fault.at for fault in planned)
    assert all(0 <= fault.at <= 100 for fault in planned)
    assert sum(fault.kind is Kind.KILL for fault in planned) == 20
    assert len(planned) == 20 + 3 + 4 + 9 + 5
