"""The time between two calls of a replica that asks or reports periodically. It grows with the number of replicas, so that
the node of the control keys is not busier with a thousand of them."""

from __future__ import annotations

CALLS_A_SECOND = 500
"""The most calls of a kind that all replicas together make in a second. A call takes about 25 us of a server's CPU."""

REPORTS_A_SECOND = 250
"""The same for health records, for which nobody waits."""


def period_s(usual_s: float, replicas: int, calls_a_second: int = CALLS_A_SECOND) -> float:
    """Seconds between two calls of one of `replicas`: `usual_s`, or more if there are many."""
    return max(usual_s, replicas / calls_a_second)
