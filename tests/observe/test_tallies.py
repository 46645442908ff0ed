"""Counters and histograms: a scrape shows what the Prometheus client's own would show."""

from __future__ import annotations

import math

import prometheus_client
from prometheus_client import CollectorRegistry, generate_latest

from crawler.observe.tallies import Counter, Histogram

BOUNDS = (0.5, 1.0, 86_400.0 * 90)


def without_created(registry: CollectorRegistry) -> list[str]:
    return [line for line in generate_latest(registry).decode().splitlines() if "_created" not in line]


def test_a_scrape_is_the_one_of_the_client_library() -> None:
    own, client = CollectorRegistry(), CollectorRegistry()
    plain, labelled = Counter("c", "C", (), own), Counter("d", "D", ("x", "y"), own)
    unused, values = Histogram("h", "H", (), own, BOUNDS), Histogram("i", "I", ("x",), own, BOUNDS)
    others = (
        prometheus_client.Counter("c", "C", (), registry=client),
        prometheus_client.Counter("d", "D", ("x", "y"), registry=client),
        prometheus_client.Histogram("h", "H", (), registry=client, buckets=BOUNDS),
        prometheus_client.Histogram("i", "I", ("x",), registry=client, buckets=BOUNDS),
    )
    assert without_created(own) == without_created(client)
    plain.inc(by=2.5)
    others[0].inc(2.5)
    for labels in (("1", "2"), ("2", '"1"\n'), ("1", "2")):
        labelled.inc(*labels)
        others[1].labels(*labels).inc()
    labelled.inc("3", "3", by=0)
    others[1].labels("3", "3")
    for value in (0.0, 0.5, math.nextafter(0.5, 1), 1.0, 1.25, 1e9):
        values.observe(value, "a")
        others[3].labels("a").observe(value)
    values.observe(2.0, "b")
    others[3].labels("b").observe(2.0)
    assert without_created(own) == without_created(client)
    unused.observe(0.75)
    others[2].observe(0.75)
    assert without_created(own) == without_created(client)
