"""Ten days of pages that are visited again; ``python -m tests.simulation.recrawl`` is the long run."""

from __future__ import annotations

import pytest

from tests.simulation.loop import Breach
from tests.simulation.recrawl import Plan, RecrawlRun
from tests.simulation.wire import Wire

pytestmark = pytest.mark.long

SHORT = Plan(seed=2, domains=6, pages=150, days=10.0, day_s=120.0)


@pytest.mark.e2e
def test_copies_are_nearly_as_fresh_as_they_can_be_and_no_page_is_lost(wire: Wire) -> None:
    """Through kills, joins and outages, while the rates of the pages are learned. The long run asks for more, because
    learning then takes a smaller part of the time, and so does the way of a visit through the engine."""
    run = RecrawlRun(SHORT, wire)
    try:
        found = run.go()
    except Breach as breach:
        breach.add_note("\n".join(run.history.told(breach.about)[-40:]))
        raise
    assert found.reached >= 0.85 * found.optimum, str(found)
    assert found.reached >= 1.05 * found.uniform, str(found)
    assert found.visits > 8 * SHORT.pages
