"""Every metric that a replica may expose, for the tests that hold documents to the code."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import Metric

from crawler.observe.metrics import Metrics, MetricsCollector, ReplicaState
from crawler.observe.summary import Summary

_EMPTY: dict[str, Any] = {"str": "", "int": 0, "list": [], "dict": {}, "float | None": None}


OWN = ReplicaState(0, 0, 0, 0, paused=False, sink_bytes=0, settings_revision=1, disk_free=0)
"""The state of a replica that does nothing."""


def families() -> list[Metric]:
    """All families of peercrawl's own, in the order of the code."""
    metrics = Metrics()
    metrics.registry.register(MetricsCollector(lambda: OWN, empty_summary))
    return [family for family in metrics.registry.collect() if family.name.startswith("peercrawl_")]


def empty_summary(**changes: Any) -> Summary:
    """A summary of a crawl that has nothing but `changes`."""
    fields = {name: _EMPTY[str(kind).partition("[")[0]] for name, kind in Summary.__annotations__.items()}
    return msgspec.convert(fields | changes, Summary)
