"""The time between two calls of a replica that asks or reports periodically. It grows with the number of replicas, so that
the node of the control keys is not busier with a thousand of them."""

from __future__ import annotations

CALLS_A_SECOND = 500
"""The most calls of a kind that all replicas together make in a second. A call takes about 25 us of a server's CPU."""


def period_s(usual_s: float, replicas: int) -> float:
    """Seconds between two calls of one of `replicas`: `usual_s`, or more if there are many."""
    return max(usual_s, replicas / CALLS_A_SECOND)
