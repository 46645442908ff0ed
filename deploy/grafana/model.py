"""What a dashboard consists of: rows of panels with their queries. `build.py` adds everything else that Grafana needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

C = '{crawl="$crawl"}'
"""Selects the crawl that the dashboard shows."""

ONE = '{crawl="$crawl", replica=~"$replica"}'
"""Selects the replicas that the dashboard shows."""

R = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: expression -> legend. `kind`: a panel type of Grafana. `help`: a description, shown next to
    the title."""

    title: str
    unit: str
    queries: dict[str, str]
    help: str
    kind: str = "timeseries"
    width: int = 8
    stack: bool = False
    red_from: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """Panels from left to right under a heading."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Dashboard:
    """`answers`: the question that the dashboard answers. `by_replica`: whether the reader chooses replicas."""

    uid: str
    title: str
    answers: str
    rows: Sequence[Row]
    by_replica: bool = False


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks the times at which `query` has a value. `text`: what the mark says, with labels in double braces."""

    name: str
    colour: str
    query: str
    text: str


_NOW, _BEFORE = (f"count by (replica) (peercrawl_build_info{C}{offset})" for offset in ("", " offset $__rate_interval"))
_REVISION, _EARLIER = (
    f"max by (crawl) (peercrawl_settings_revision{C}{offset})" for offset in ("", " offset $__rate_interval")
)

ANNOTATIONS = (
    Annotation("Replicas that came", "green", f"{_NOW} unless {_BEFORE}", "{{replica}} came"),
    Annotation("Replicas that left", "red", f"{_BEFORE} unless {_NOW}", "{{replica}} left"),
    Annotation("Changed settings", "blue", f"{_REVISION} > {_EARLIER}", "The replicas apply changed settings"),
)


def stat(title: str, unit: str, query: str, help: str, red_from: float | None = None) -> Panel:
    return Panel(title, unit, {query: ""}, help, "stat", 4, red_from=red_from)


def quantiles(metric: str, by: str = "", selector: str = C) -> dict[str, str]:
    """The median and the 99th percentile of a histogram, by a label if one is named."""
    group = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return {
        f"histogram_quantile({q}, sum by ({group}) (rate(peercrawl_{metric}_bucket{selector}{R})))": f"{legend}{name}"
        for q, name in ((0.5, "median"), (0.99, "99 %"))
    }


def phases(quantile: float, selector: str = C) -> dict[str, str]:
    """A quantile of each phase of a fetch."""
    buckets = f"peercrawl_fetch_phase_seconds_bucket{selector}{R}"
    return {f"histogram_quantile({quantile}, sum by (le, phase) (rate({buckets})))": "{{phase}}"}


def rate(metric: str, by: str, selector: str = C) -> dict[str, str]:
    return {f"sum by ({by}) (rate(peercrawl_{metric}{selector}{R}))": "{{" + by + "}}"}


def latest(metric: str, by: str, selector: str = C) -> dict[str, str]:
    """The values of a gauge by a label: of the one replica that exports it, or of each replica."""
    return {f"max by ({by}) (peercrawl_{metric}{selector})": "{{" + by + "}}"}
