"""What a replica reports about a lease."""

from __future__ import annotations

from crawler.worker.group_settler import settlement
from crawler.worker.results import VisitReport
from crawler.worker.visit import Visit
from frontier.queue import Lease
from tests.worker.test_throttle import Stopped, runtime


def test_the_delay_is_reported_only_after_a_response() -> None:
    """Before, the stored one is newer: an operator may have changed it since the lease."""
    clock = Stopped()
    visit = Visit(Lease("a.test", 0, 1, 2, delay_ms=1_000, state="", entries=()), 1e12, clock.monotonic())
    assert settlement(runtime(clock), visit, VisitReport()).delay_ms is None
    visit.start_delay(1_000, clock.monotonic())
    assert settlement(runtime(clock), visit, VisitReport()).delay_ms == 1_000
