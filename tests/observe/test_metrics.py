"""How the events of a crawl change its metrics."""

from __future__ import annotations

from crawler.events import LinksPushed
from crawler.observe.metrics import Metrics


def test_links_are_counted_by_result() -> None:
    metrics = Metrics()
    metrics.observe(LinksPushed(accepted=1, known=2, capped=3, outside=4, skipped=5))
    fates = ("accepted", "known", "capped", "outside", "recent")
    counted = [metrics.registry.get_sample_value("peercrawl_links_total", {"fate": fate}) for fate in fates]
    assert counted == [1, 2, 3, 4, 5]
