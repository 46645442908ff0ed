"""What a replica reports about a lease."""

from __future__ import annotations

from crawler.worker.commit_group import LeaseReport
from crawler.worker.group_settler import settlement
from crawler.worker.leased_domain import LeasedDomain
from frontier.settle import Lease
from tests.worker.test_throttle import Stopped, runtime


def test_the_delay_is_reported_only_after_a_response() -> None:
    """Before, the stored one is newer: an operator may have changed it since the lease."""
    clock = Stopped()
    leased = LeasedDomain(Lease("a.test", 0, 1, 2, delay_ms=1_000, state="", entries=()), 1e12, clock.monotonic())
    assert settlement(runtime(clock), leased, LeaseReport()).delay_ms is None
    leased.start_delay(1_000, clock.monotonic())
    assert settlement(runtime(clock), leased, LeaseReport()).delay_ms == 1_000
