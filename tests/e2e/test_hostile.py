"""Each kind of attack, end to end. Time, memory and the blocking of the event loop are bounded, the outcome is counted,
and other domains are crawled as usual."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import Size, crawl
from tests.simweb.features import Hazard
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DUE: dict[Hazard, set[str]] = {
    Hazard.ENDLESS_BODY: {"done:ok cut:length"},
    Hazard.ENDLESS_HEAD: {"dead:header_too_large"},
    Hazard.HUGE_FIELD: {"dead:header_too_large"},
    Hazard.HUGE_LOCATION: {"dead:header_too_large"},
    Hazard.DRIP: {"done:ok cut:time"},
    Hazard.HUGE_CHUNK: {"done:ok cut:disconnect"},
    Hazard.MANY_LINKS: {"denied:robots"},
    Hazard.CIRCLE: {"done:redirect"},
    Hazard.CALENDAR: {"denied:put_off"},
    Hazard.BLANK_LINE: {"retry:protocol", "dead:protocol"},
    Hazard.INTERIM: {"retry:protocol", "dead:protocol"},
    Hazard.REFERENCE: {"done:http_404"},  # of its link
}
"""The outcomes of each attack in the counters, besides `done:ok` of the other pages of its domain."""

POSSIBLE: dict[Hazard, set[str]] = {
    Hazard.UNREQUESTED: {"retry:protocol", "dead:protocol"},
    **{trap: {"denied:put_off"} for trap in (Hazard.SESSIONS, Hazard.DEEPER)},
}
"""Outcomes that depend on timing: the bytes arrive before or after the next request is sent on the same connection, and a
trap with several links a page is recognised before or after the domain is full. Each month of the calendar leads to one, so
it is recognised after half as many pages as the domain may have."""


async def test_all_attacks_at_once(tmp_path: Path, valkey: ValkeyProcess) -> None:
    """Given one domain for each kind of attack and eight good ones, when a replica crawls them to the end, then the good
    ones are crawled completely and politely, each attack is counted with its outcome, and nothing blocked the event loop
    for long."""
    outcome, result = await crawl(tmp_path, Size(good=8, hostile=len(Hazard), delay_s=0.3), valkey.url)
    assert result.ok, str(result)
    for hazard in Hazard:
        found = outcome.reasons[hazard].keys() - {"done:ok"} - POSSIBLE.get(hazard, set())
        assert found == DUE.get(hazard, set()), hazard
        assert outcome.reasons[hazard]["done:ok"] >= 2, hazard  # the root, and the valid page next to the attack
    for trap in (Hazard.CALENDAR, Hazard.SESSIONS, Hazard.DEEPER):
        assert sum(outcome.reasons[trap].values()) <= 50
    # About 50 ms on an idle machine and four times that on a busy one. Unbounded work would take seconds.
    assert outcome.own_lag_s < 0.5
