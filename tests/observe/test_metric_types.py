"""The metrics are exposed exactly like the counters and histograms of the Prometheus client."""

from __future__ import annotations

import prometheus_client
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from crawler.observe.metric_types import CounterMetric, HistogramMetric

BOUNDS = (0.005, 0.5, 1.0, 2.5)

disable_created_metrics()  # type: ignore[no-untyped-call]


def exposed(metric: CounterMetric | HistogramMetric) -> list[str]:
    registry = CollectorRegistry()
    registry.register(metric)
    return _lines(registry)


def _lines(registry: CollectorRegistry) -> list[str]:
    return sorted(generate_latest(registry).decode().splitlines())


@given(st.lists(st.integers(0, 1 << 40)))
def test_a_counter_without_labels(amounts: list[int]) -> None:
    registry = CollectorRegistry()
    theirs = prometheus_client.Counter("a_things", "Some things", registry=registry)
    ours = CounterMetric("a_things", "Some things")
    for amount in amounts:
        theirs.inc(amount)
        ours.count(by=amount)
    assert exposed(ours) == _lines(registry)


@given(st.lists(st.tuples(st.text(), st.sampled_from("ab"))))
def test_a_counter_with_labels_of_any_text(labels: list[tuple[str, str]]) -> None:
    registry = CollectorRegistry()
    theirs = prometheus_client.Counter("a_things", "Some things", ("text", "letter"), registry=registry)
    ours = CounterMetric("a_things", "Some things", "text", "letter")
    for of in labels:
        theirs.labels(*of).inc()
        ours.count(*of)
    assert exposed(ours) == _lines(registry)


VALUES = st.floats(0, allow_nan=False, allow_infinity=False) | st.sampled_from(BOUNDS)


@given(st.lists(VALUES))
def test_a_histogram_without_labels(values: list[float]) -> None:
    registry = CollectorRegistry()
    theirs = prometheus_client.Histogram("a_seconds", "How long", registry=registry, buckets=BOUNDS)
    ours = HistogramMetric("a_seconds", "How long", BOUNDS)
    for value in values:
        theirs.observe(value)
        ours.observe(value)
    assert exposed(ours) == _lines(registry)


@given(st.lists(st.tuples(VALUES, st.text())))
def test_a_histogram_with_labels(values: list[tuple[float, str]]) -> None:
    registry = CollectorRegistry()
    theirs = prometheus_client.Histogram("a_seconds", "How long", ("of",), registry=registry, buckets=BOUNDS)
    ours = HistogramMetric("a_seconds", "How long", BOUNDS, "of")
    for value, of in values:
        theirs.labels(of).observe(value)
        ours.observe(value, of)
    assert exposed(ours) == _lines(registry)
