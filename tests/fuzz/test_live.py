"""A few thousand hostile replies to a live replica; `python -m tests.fuzz.live` sends many more."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.live import MEMORY_MB, fuzz
from tests.fuzz.replies import End, reply

pytestmark = pytest.mark.long

BUSY_LAG_S = 1.0
"""Other tests share the machine. Unbounded work would take longer than this."""


@pytest.mark.e2e
def test_a_replica_survives_hostile_replies(tmp_path: Path) -> None:
    report = fuzz(tmp_path, responses=1_000, seed=7)
    assert report.breaches == []
    assert report.responses > 700
    assert report.records > report.settled
    assert {"ok", "redirect", "protocol", "header_too_large", "disconnected", "timeout"} <= report.reasons.keys()
    assert report.peak_mb < MEMORY_MB
    assert report.own_lag_s < BUSY_LAG_S


def test_a_reply_depends_on_its_generator_alone() -> None:
    first, second = (list(reply(random.Random("7 h1.test /3"), "/3")) for _ in range(2))
    assert first == second
    assert isinstance(first[-1], End)
