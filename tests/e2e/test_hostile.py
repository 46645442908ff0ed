"""Each kind of attack, end to end: bounded in time, memory and the loop's patience, with an outcome that is counted, while
the good domains beside it are crawled as if it were not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.simweb import Hazard
from tests.hostile import Size, crawl
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

DUE: dict[Hazard, set[str]] = {
    Hazard.ENDLESS_BODY: {"done:ok cut:length"},
    Hazard.ENDLESS_HEAD: {"dead:header_too_large"},
    Hazard.HUGE_FIELD: {"dead:header_too_large"},
    Hazard.HUGE_LOCATION: {"dead:header_too_large"},
    Hazard.DRIP: {"done:ok cut:time"},
    Hazard.HUGE_CHUNK: {"done:ok cut:disconnect"},
    Hazard.MANY_LINKS: {"denied:robots"},
    Hazard.CIRCLE: {"done:redirect"},
}
"""What the counters say of an attack besides `done:ok`, which is said of the pages beside it."""


async def test_all_attacks_at_once(tmp_path: Path, valkey: ValkeyProcess) -> None:
    """Given one domain of each kind of attack beside eight good ones, when a replica crawls them to the end, then the good
    ones are complete and polite, each attack has its outcome in the crawl's counters, and nothing held the event loop
    for long."""
    outcome, result = await crawl(tmp_path, Size(good=8, hostile=len(Hazard), delay_s=0.3), valkey.url)
    assert result.ok, str(result)
    for hazard in Hazard:
        assert outcome.reasons[hazard].keys() - {"done:ok"} == DUE.get(hazard, set()), hazard
        assert outcome.reasons[hazard]["done:ok"] >= 2, hazard  # the root, and the sound page beside the attack
    for trap in (Hazard.CALENDAR, Hazard.SESSIONS, Hazard.DEEPER):
        assert sum(outcome.reasons[trap].values()) <= 50
    # Of its own doing 50 ms on a quiet machine, four times that on a busy one; what is not bounded takes seconds.
    assert outcome.own_lag_s < 0.5
