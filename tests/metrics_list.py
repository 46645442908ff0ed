"""Every metric that a replica may expose, for the tests that hold documents to the code."""

from __future__ import annotations

from typing import Any

import msgspec
from prometheus_client import Metric

from crawler.observe.metrics import Metrics, MetricsCollector, ReplicaState
from crawler.observe.summary import Summary

_EMPTY: dict[str, Any] = {"str": "", "int": 0, "list": [], "dict": {}, "float | None": None}


def families() -> list[Metric]:
    """All families of peercrawl's own, in the order of the code."""
    own = ReplicaState(0, 0, 0, 0, paused=False, sink_bytes=0, settings_revision=1)
    summary = msgspec.convert({name: _EMPTY[kind.partition("[")[0]] for name, kind in _fields().items()}, Summary)
    metrics = Metrics()
    metrics.registry.register(MetricsCollector(lambda: own, lambda: summary))
    return [family for family in metrics.registry.collect() if family.name.startswith("peercrawl_")]


def _fields() -> dict[str, str]:
    return {name: str(kind) for name, kind in Summary.__annotations__.items()}
