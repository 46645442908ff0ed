"""The judge of a run on a cluster sees what it is there to see, and excuses only what a fault explains."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.chaos.cluster_report import feel
from tests.chaos.diary import Kind
from tests.chaos.node_faults import NodeDiary, NodeFault, NodeKind
from tests.chaos.node_plan import NodeOptions, plan_outages
from tests.simweb.server import Record

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


def test_a_killed_replica_of_the_crawler_still_explains_what_it_had_in_hand() -> None:
    found = diary()
    found.note(Kind.KILL, "r1", 50.0, 50.0)
    assert found.explains(request(49.5, "well.test"))


def test_requests_may_come_too_close_only_where_a_lease_can_be_forgotten() -> None:
    assert not diary().excuses_closeness(request(104.0, "hit.test"))
    assert diary(loses_tails=True).excuses_closeness(request(104.0, "hit.test"))
    assert not diary(loses_tails=True).excuses_closeness(request(104.0, "well.test"))


def test_the_long_plan_has_all_faults_and_a_node_leaves_after_one_has_joined() -> None:
    options = NodeOptions.of_length(300)
    planned = plan_outages(options, random.Random(1))
    kinds = [fault.kind for fault in planned]
    assert kinds.count(NodeKind.KILL) + kinds.count(NodeKind.STOP) == 10
    assert kinds.count(NodeKind.FAILOVER) == kinds.count(NodeKind.CUT) == 5
    assert kinds.index(NodeKind.JOIN) < kinds.index(NodeKind.LEAVE)
    assert options.replica_kills == 30
    assert [fault.at for fault in planned] == sorted(fault.at for fault in planned)
    assert planned == plan_outages(options, random.Random(1))
