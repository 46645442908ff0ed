"""Counters and histograms that only the event loop changes. Those of the Prometheus client take a lock and check their
state at each change, which costs twice as much: 8 us a page."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import inf

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Counter(Collector):
    """Counts by the values of `labels`. Without labels, there is a count from the start."""

    def __init__(self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        registry.register(self)
        self._about = name, meaning, labels
        self._counts: defaultdict[tuple[str, ...], float] = defaultdict(float, {} if labels else {(): 0.0})

    def inc(self, *labels: str, by: float = 1) -> None:
        """Add `by` to the count of `labels`."""
        self._counts[labels] += by

    def collect(self) -> Iterator[Metric]:
        name, meaning, names = self._about
        family = CounterMetricFamily(name, meaning, labels=names)
        for labels, count in self._counts.items():
            family.add_metric(labels, count)
        yield family


class Histogram(Collector):
    """Counts values by the values of `labels` and the first of `bounds`, in ascending order, that they do not exceed."""

    def __init__(
        self, name: str, meaning: str, labels: Sequence[str], registry: CollectorRegistry, bounds: Sequence[float]
    ) -> None:
        registry.register(self)
        self._about = name, meaning, labels
        self._bounds = bounds
        # For each bound and infinity how many values, and then their sum.
        self._tallies: defaultdict[tuple[str, ...], list[float]] = defaultdict(lambda: [0.0] * (len(bounds) + 2))
        if not labels:
            self._tallies[()]

    def observe(self, value: float, *labels: str) -> None:
        """Count `value`."""
        tally = self._tallies[labels]
        tally[bisect_left(self._bounds, value)] += 1
        tally[-1] += value

    def collect(self) -> Iterator[Metric]:
        name, meaning, names = self._about
        family = HistogramMetricFamily(name, meaning, labels=names)
        bounds = [floatToGoString(bound) for bound in (*self._bounds, inf)]  # type: ignore[no-untyped-call]
        for labels, (*counts, total) in self._tallies.items():
            family.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
        yield family
