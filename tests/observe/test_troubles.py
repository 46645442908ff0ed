"""What a replica waits for, in its health record."""

from __future__ import annotations

import errno
import os

import pytest

from crawler.errors import FailureKind
from crawler.events import Event, GroupCommitted, OwnFailure, SinkBlocked
from crawler.observe.health import Troubles

CUT_OFF = os.strerror(errno.ENETUNREACH)


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (OwnFailure(FailureKind.MACHINE, CUT_OFF), f"waits for its machine: {CUT_OFF}; check its network"),
        (OwnFailure(FailureKind.MACHINE, "no roots; install some"), "waits for its machine: no roots; install some"),
        (OwnFailure(FailureKind.PROXY, "refused"), "waits for its proxy: refused; check that it runs"),
        (SinkBlocked("no room in out"), "cannot write output: no room in out; make room"),
    ],
)
def test_it_says_what_helps(event: Event, said: str) -> None:
    troubles = Troubles()
    troubles.observe(event)
    assert troubles.obstacle(waits_for_permits=False).startswith(said)


def test_the_health_record_says_what_is_awaited_until_a_result_is_written() -> None:
    troubles = Troubles()
    troubles.observe(OwnFailure(FailureKind.OUR_DNS, "a.test: no answer"))
    for results, said in (
        (0, "waits for the DNS: a.test: no answer; check the name servers in /etc/resolv.conf"),
        (1, ""),
    ):
        troubles.observe(GroupCommitted(results, 0, 0.0, 0.0, 0.0, 0, 0.0))
        assert troubles.obstacle(waits_for_permits=False) == said
