"""What the machine's load explains is measured in the processes concerned, and excuses no more than that.

A second request is excused only by a fault of the replica that made the first one, between asking and settling.

The judge of a run on a cluster sees what it is there to see, and excuses only what a fault explains.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos import standstills
from tests.chaos.diary import Diary, Kind, NodeDiary, NodeFault, NodeKind
from tests.chaos.report import feel
from tests.chaos.standstills import Standstill
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


DOMAINS = {"a:1": frozenset({"hit.test"}), "b:2": frozenset({"well.test"})}


def request(start: float, domain: str, replica: str = "r1") -> Record:
    return Record(
        *(start, start + 0.1, start, "127.0.0.1:80", domain, domain, "GET", "/", 200, None, 1),
        agent=f"peercrawl/1 (+{replica})",
    )


def diary(kind: NodeKind = NodeKind.KILL, loses_tails: bool = False) -> NodeDiary:
    """Node a:1 suffered `kind` from 100 to 103, and the cluster was whole at 106."""
    return NodeDiary(3.0, nodes=[NodeFault(kind, "a:1", 100.0, 103.0, 106.0, DOMAINS)], loses_tails=loses_tails)


def test_a_fault_is_felt_by_its_own_domains_until_their_first_request_and_by_others_while_they_stop() -> None:
    records = [request(at, "well.test") for at in (99.0, 99.5, 102.25, 105.0, 107.0, 120.0)]
    records += [request(at, "hit.test") for at in (99.9, 101.0, 104.5, 130.0)]
    (felt,) = feel(records, diary())
    assert felt.return_s == pytest.approx(1.5)
    assert felt.stops == {"b:2": pytest.approx(2.75)}  # from 107.0 on the cluster was whole


def test_others_that_are_not_asked_at_all_in_a_fault_have_stopped() -> None:
    (felt,) = feel([request(110.0, "well.test")], diary())
    assert felt.stops == {"b:2": pytest.approx(10.0)}


def test_others_wait_for_the_leases_of_a_killed_replica_without_having_stopped() -> None:
    records = [request(at, "well.test") for at in (99.5, 104.0)]
    found = diary()
    found.note(Kind.KILL, "r1", 100.5, 100.5)
    (felt,) = feel(records, found)
    assert felt.stops == {"b:2": pytest.approx(0.5)}  # from 103.5 on
    domains = {**DOMAINS, "b:2": frozenset({"well.test", "third.test"})}
    found.nodes[:] = [replace(found.nodes[0], domains=domains)]
    records += [request(at, "third.test", "r2") for at in (99.6, 104.5)]
    (felt,) = feel(records, found)
    assert felt.stops == {"b:2": pytest.approx(4.4)}  # another replica has one of its domains


def test_domains_without_more_work_neither_stop_nor_return() -> None:
    (felt,) = feel([request(99.0, "well.test"), request(102.0, "hit.test")], diary())
    assert felt.return_s is None
    assert felt.stops == {"b:2": 0.0}


@pytest.mark.parametrize(
    ("kind", "start", "domain", "explained"),
    [
        (NodeKind.KILL, 99.0, "hit.test", True),  # not settled yet
        (NodeKind.KILL, 105.9, "hit.test", True),  # its lease may be from before
        (NodeKind.KILL, 97.0, "hit.test", False),  # long settled
        (NodeKind.KILL, 106.1, "hit.test", False),
        (NodeKind.KILL, 101.0, "well.test", False),  # of a node that was well
        (NodeKind.CUT, 101.0, "hit.test", True),
        (NodeKind.MOVE, 101.0, "hit.test", False),  # nothing may be repeated for it
    ],
)
def test_a_second_request_is_explained_by_an_outage_of_its_own_node(
    kind: NodeKind, start: float, domain: str, explained: bool
) -> None:
    assert diary(kind).explains(request(start, domain)) is explained


def test_what_a_master_forgets_is_what_it_confirmed_before_it_was_killed() -> None:
    asked = request(97.5, "hit.test")
    assert not diary(loses_tails=True).explains(asked)
    forgetful = NodeFault(NodeKind.KILL, "a:1", 100.0, 103.0, 106.0, DOMAINS, forgets_s=1.0)
    assert NodeDiary(3.0, nodes=[forgetful], loses_tails=True).explains(asked)


def test_requests_may_come_too_close_only_where_a_lease_can_be_forgotten() -> None:
    assert not diary().excuses_closeness(request(104.0, "hit.test"))
    assert diary(loses_tails=True).excuses_closeness(request(104.0, "hit.test"))
    assert not diary(loses_tails=True).excuses_closeness(request(104.0, "well.test"))


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
