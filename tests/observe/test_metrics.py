"""How the events of a crawl change its metrics."""

from __future__ import annotations

import platform

from crawler import __version__
from crawler.events import LinksPushed, PageSettled, WritesRepeated
from crawler.observe.metrics import MOST_DATA_SETS, OTHER, Metrics
from crawler.page import CopyAge, Item, Outcome, Page


def test_links_are_counted_by_result() -> None:
    metrics = Metrics()
    metrics.observe(LinksPushed(accepted=1, seen=2, capped=3, outside=4, skipped=5))
    results = ("accepted", "seen", "capped", "outside", "recent")
    counted = [metrics.registry.get_sample_value("peercrawl_links_total", {"result": result}) for result in results]
    assert counted == [1, 2, 3, 4, 5]


def test_visits_are_counted_by_what_they_found() -> None:
    metrics = Metrics()
    for found in ("new", "changed", "changed", ""):
        page = Page("http://a.test/", "a.test", 0, Outcome.DONE, "ok", 1.0, visit=found)
        metrics.observe(PageSettled(page))
    counted = [
        metrics.registry.get_sample_value("peercrawl_page_visits_total", {"found": f}) for f in ("new", "changed")
    ]
    assert counted == [1, 2]


def visit_of(copy: CopyAge) -> PageSettled:
    return PageSettled(Page("http://a.test/", "a.test", 0, Outcome.DONE, "ok", 1.0, visit="changed", copy_age=copy))


def test_the_age_of_copies_and_the_time_since_they_were_due_are_counted() -> None:
    metrics = Metrics()
    for copy in (CopyAge(100.0, 0.0), CopyAge(300.0, 100.0)):
        metrics.observe(visit_of(copy))
    value = metrics.registry.get_sample_value
    assert (value("peercrawl_copy_age_seconds_sum"), value("peercrawl_copy_age_seconds_count")) == (400, 2)
    assert value("peercrawl_visit_overdue_seconds_sum") == 100


def test_repeated_writes_are_counted_with_their_outcome() -> None:
    metrics = Metrics()
    metrics.observe(WritesRepeated(shards=3, unsettled=2))
    metrics.observe(WritesRepeated(shards=1, unsettled=0))
    names = ("shards_repeated", "urls_unsettled")
    assert [metrics.registry.get_sample_value(f"peercrawl_{name}_total") for name in names] == [4, 2]


def test_every_series_names_its_crawl_and_replica() -> None:
    metrics = Metrics({"crawl": "news", "replica": "r1"})
    metrics.observe(LinksPushed(accepted=1, seen=2, capped=3, outside=4, skipped=5))
    for _ in range(2):  # a scrape changes nothing for the next one
        lines = [line for line in metrics.render().decode().splitlines() if not line.startswith("#")]
        assert [line for line in lines if 'crawl="news"' not in line or 'replica="r1"' not in line] == []
    assert 'peercrawl_links_total{crawl="news",replica="r1",result="seen"} 2.0' in lines


def test_the_versions_and_the_name_are_labels_of_a_metric() -> None:
    registry = Metrics({"crawl": "news", "replica": "r1"}, name="crawler-0").registry
    labels = {"crawl": "news", "replica": "r1", "name": "crawler-0"}
    labels |= {"version": __version__, "python": platform.python_version()}
    assert registry.get_sample_value("peercrawl_build_info", labels) == 1


def test_items_are_counted_by_data_set_and_those_of_many_as_others() -> None:
    metrics = Metrics()
    names = ["products", *(f"made-up-{number}" for number in range(100))]
    items = tuple(Item(name, b"{}") for name in names)
    rejected = {"products:price:missing": 3}
    page = Page("http://a.test/", "a.test", 0, Outcome.DONE, "ok", 1.0, items=items, rejected_by=rejected)
    metrics.observe(PageSettled(page))

    def counted(name: str, data_set: str) -> float | None:
        return metrics.registry.get_sample_value(f"peercrawl_{name}_total", {"data_set": data_set})

    assert (counted("items", "products"), counted("items", OTHER)) == (1, len(names) - MOST_DATA_SETS)
    assert counted("items_rejected", "products") == 3
