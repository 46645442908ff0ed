"""The contents of the dashboards. A dashboard has a title, the questions that it answers, and panels from left to right.

A panel has a title, a unit, and queries with their legends. `build.py` adds everything else that Grafana needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

C = '{crawl="$crawl"}'
"""Selects the crawl that the dashboard shows."""

ONE = '{crawl="$crawl", instance=~"$instance"}'
"""Selects the replicas that the dashboard shows."""

R = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: expression -> legend. `kind`: a panel type of Grafana. `help`: a description, shown next to
    the title."""

    title: str
    unit: str
    queries: dict[str, str]
    kind: str = "timeseries"
    width: int = 8
    help: str = ""
    stack: bool = False
    red_from: float | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    uid: str
    title: str
    answers: str
    panels: Sequence[Panel]
    by_instance: bool = False


def stat(title: str, unit: str, query: str, help: str = "", red_from: float | None = None) -> Panel:
    return Panel(title, unit, {query: ""}, "stat", 4, help, red_from=red_from)


def quantiles(metric: str, by: str = "", selector: str = C) -> dict[str, str]:
    """The median and the 99th percentile of a histogram, by a label if one is named."""
    group = f"le, {by}" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    return {
        f"histogram_quantile({q}, sum by ({group}) (rate(peercrawl_{metric}_bucket{selector}{R})))": (f"{legend}{name}")
        for q, name in ((0.5, "median"), (0.99, "99 %"))
    }


def rate(metric: str, by: str, selector: str = C) -> dict[str, str]:
    legend = "{{" + by + "}}" if by else "all"
    grouped = f" by ({by})" if by else ""
    return {f"sum{grouped} (rate(peercrawl_{metric}{selector}{R}))": legend}


OVERVIEW = Dashboard(
    "peercrawl-overview",
    "peercrawl: Overview",
    "Is it going well?",
    [
        stat("Pages a second", "reqps", f"sum(rate(peercrawl_pages_total{C}{R}))"),
        stat("Pages done", "short", 'max(peercrawl_crawl_urls_settled_total{crawl="$crawl", outcome="done"})'),
        stat("URLs open", "short", 'sum(max by (state) (peercrawl_queue_urls{crawl="$crawl", state!="dead"}))'),
        stat("Replicas", "short", f"max(peercrawl_replicas{C})"),
        stat("Shards unowned", "short", f"max(peercrawl_shards_unowned{C})", "Nobody crawls these domains.", 1),
        stat(
            "Not done",
            "percentunit",
            f'sum(rate(peercrawl_pages_total{{crawl="$crawl", outcome=~"retry|dead"}}{R}))'
            f" / sum(rate(peercrawl_pages_total{C}{R}))",
            "Share of URLs that were put off or given up.",
            0.3,
        ),
        Panel("Pages by outcome", "reqps", rate("pages_total", "outcome"), width=12, stack=True),
        Panel("Pages by status", "reqps", rate("pages_total", "status"), width=12, stack=True),
        Panel("Received", "Bps", rate("received_bytes_total", "instance"), stack=True),
        Panel("Queue", "short", {f"max by (state) (peercrawl_queue_urls{C})": "{{state}}"}, stack=True),
        Panel("Response time", "s", quantiles("response_seconds")),
        Panel(
            "Why URLs ended",
            "reqps",
            {
                f"topk(10, sum by (outcome, reason) (rate(peercrawl_page_reasons_total{C}{R})))": "{{outcome}} {{reason}}"
            },
            width=12,
        ),
        Panel("Links", "cps", rate("links_total", "fate"), width=12, stack=True),
    ],
)

FRONTIER = Dashboard(
    "peercrawl-frontier",
    "peercrawl: Frontier",
    "What is queued, and does it flow?",
    [
        stat("Known domains", "short", f"max(peercrawl_known_domains{C})"),
        stat("Seen URLs", "short", f"max(peercrawl_seen_urls{C})"),
        stat("Accepted", "short", f"max(peercrawl_crawl_urls_accepted_total{C})"),
        stat("Dead", "short", 'max(peercrawl_queue_urls{crawl="$crawl", state="dead"})'),
        stat(
            "Longest overdue", "s", f"max(peercrawl_oldest_due_seconds{C})", "The domain that waits longest for us.", 60
        ),
        stat("Leases expired", "short", f"max(peercrawl_leases_expired_total{C})", "Domains that a lost replica held."),
        Panel(
            "URLs by state", "short", {f"max by (state) (peercrawl_queue_urls{C})": "{{state}}"}, width=12, stack=True
        ),
        Panel(
            "Domains by state",
            "short",
            {f"max by (state) (peercrawl_queue_domains{C})": "{{state}}"},
            width=12,
            stack=True,
        ),
        Panel(
            "Settled",
            "reqps",
            {f"max by (outcome) (rate(peercrawl_crawl_urls_settled_total{C}{R}))": "{{outcome}}"},
        ),
        Panel("Links offered", "cps", rate("links_total", "fate"), stack=True),
        Panel("Links not offered", "cps", rate("links_dropped_total", "reason"), stack=True),
        Panel("Domains leased", "ops", rate("domains_leased_total", "instance")),
        Panel("Lease calls", "s", quantiles("lease_call_seconds")),
        Panel(
            "Turns late",
            "s",
            quantiles("turn_late_seconds"),
            help="How long domains waited for a worker after they were due.",
        ),
        Panel("Commit by step", "s", quantiles("commit_seconds", "step")),
        Panel("Commit lag", "s", quantiles("commit_lag_seconds")),
        Panel(
            "Waiting for the commit",
            "short",
            {f"sum by (instance) (peercrawl_commit_backlog_pages{C})": "{{instance}}"},
        ),
    ],
)

POLITENESS = Dashboard(
    "peercrawl-politeness",
    "peercrawl: Politeness",
    "Are sites treated well, and which of them ask us to slow down?",
    [
        Panel("Rests between requests", "s", quantiles("politeness_rest_seconds")),
        Panel("Backoff by reason", "cps", rate("backoffs_total", "reason"), stack=True),
        Panel("How long backoff rests", "s", quantiles("backoff_seconds")),
        Panel("robots.txt verdicts", "cps", rate("robots_decisions_total", "verdict"), stack=True),
        Panel("robots.txt files", "cps", rate("robots_files_total", "access"), stack=True),
        Panel(
            "Backoff a page",
            "percentunit",
            {f"sum(rate(peercrawl_backoffs_total{C}{R})) / sum(rate(peercrawl_pages_total{C}{R}))": "share"},
            red_from=0.1,
        ),
        Panel(
            "Response time",
            "s",
            quantiles("response_seconds"),
            width=12,
            help="Slow answers are a site's way to say: less.",
        ),
        Panel(
            "Parts of a fetch, 99 %",
            "s",
            {
                f"histogram_quantile(0.99, sum by (le, phase) (rate(peercrawl_fetch_phase_seconds_bucket{C}{R})))": (
                    "{{phase}}"
                )
            },
            width=12,
        ),
    ],
)

CLUSTER = Dashboard(
    "peercrawl-cluster",
    "peercrawl: Cluster",
    "Who owns what, and do all agree?",
    [
        stat("Replicas", "short", f"max(peercrawl_replicas{C})"),
        stat("Epoch", "none", f"max(peercrawl_view_epoch{C})"),
        stat(
            "Views in an epoch",
            "short",
            f'count(count_values("checksum", peercrawl_view_checksum{C}))'
            f' / count(count_values("epoch", peercrawl_view_epoch{C}))',
            "1: all agree. More for minutes: see the runbook.",
            1.01,
        ),
        stat("Shards unowned", "short", f"max(peercrawl_shards_unowned{C})", red_from=1),
        stat(
            "Busiest to mean",
            "none",
            f"max(peercrawl_shards_owned{C}) / avg(peercrawl_shards_owned{C})",
            "Shards; at most 1.1.",
            1.2,
        ),
        stat(
            "Leases fenced",
            "short",
            f"sum(increase(peercrawl_leases_fenced_total{C}[$__range]))",
            "Refused for a newer view.",
        ),
        Panel("Shards owned", "short", {f"peercrawl_shards_owned{C}": "{{instance}}"}, width=12, stack=True),
        Panel("Shards moved", "short", rate("shards_moved_total", "direction"), width=12),
        Panel("Hand-over", "s", quantiles("handover_seconds"), help="From a view to the last domain given back."),
        Panel("Leases lost", "cps", rate("leases_lost_total", "instance")),
        Panel(
            "Leases expired",
            "short",
            {f"max(increase(peercrawl_leases_expired_total{C}{R}))": "expired"},
        ),
        Panel("Pages by replica", "reqps", rate("pages_total", "instance"), width=12, stack=True),
        Panel("Domains under lease", "short", {f"peercrawl_visits{C}": "{{instance}}"}, width=12, stack=True),
    ],
)

REDIS = Dashboard(
    "peercrawl-redis",
    "peercrawl: Redis",
    "Is the store quick, and has it room?",
    [
        stat("Memory", "bytes", f"max(peercrawl_redis_memory_bytes{C})"),
        stat(
            "By the formula", "bytes", f"max(peercrawl_redis_expected_memory_bytes{C})", "What the crawl should need."
        ),
        stat("Memory limit", "bytes", f"max(peercrawl_redis_max_memory_bytes{C})", "0: none."),
        stat("Away", "short", f"max(peercrawl_redis_away{C})", red_from=1),
        stat("Losses", "short", f"sum(increase(peercrawl_redis_losses_total{C}[$__range]))"),
        stat("Bytes a seen URL", "bytes", f"max(peercrawl_redis_memory_bytes{C}) / max(peercrawl_seen_urls{C})"),
        Panel(
            "Memory",
            "bytes",
            {
                f"max(peercrawl_redis_memory_bytes{C})": "used",
                f"max(peercrawl_redis_expected_memory_bytes{C})": "by the formula",
            },
            width=12,
        ),
        Panel(
            "Round trips",
            "ops",
            {f"sum by (instance) (rate(peercrawl_redis_round_trip_seconds_count{C}{R}))": "{{instance}}"},
            width=12,
            stack=True,
        ),
        Panel("Round trip time", "s", quantiles("redis_round_trip_seconds"), width=12),
        Panel("Errors", "cps", rate("redis_errors_total", "instance"), width=12),
    ],
)

REPLICA = Dashboard(
    "peercrawl-replica",
    "peercrawl: Replica",
    "What does this one process do?",
    [
        stat("Index", "none", f"max(peercrawl_peer_index{ONE})"),
        stat("Shards", "short", f"sum(peercrawl_shards_owned{ONE})"),
        stat("In flight", "short", f"sum(peercrawl_requests_in_flight{ONE})"),
        stat("Domains under lease", "short", f"sum(peercrawl_visits{ONE})"),
        stat("URLs under lease", "short", f"sum(peercrawl_leased_urls{ONE})"),
        stat("Paused", "short", f"max(peercrawl_paused{ONE})"),
        Panel("Pages", "reqps", rate("pages_total", "outcome", ONE), stack=True),
        Panel(
            "Received and archived",
            "Bps",
            {
                f"sum(rate(peercrawl_received_bytes_total{ONE}{R}))": "received",
                f"sum(rate(peercrawl_sink_bytes_total{ONE}{R}))": "archived",
            },
        ),
        Panel(
            "CPU",
            "percentunit",
            {f"sum by (instance) (rate(process_cpu_seconds_total{ONE}{R}))": "{{instance}}"},
        ),
        Panel("Memory", "bytes", {f"process_resident_memory_bytes{ONE}": "{{instance}}"}),
        Panel(
            "Event loop late",
            "s",
            quantiles("event_loop_lag_seconds", selector=ONE),
            help="What holds it up shows here first.",
        ),
        Panel("Open files", "short", {f"process_open_fds{ONE}": "open", f"process_max_fds{ONE}": "allowed"}),
        Panel(
            "Parts of a fetch",
            "s",
            {
                f"histogram_quantile(0.5, sum by (le, phase) (rate(peercrawl_fetch_phase_seconds_bucket{ONE}{R})))": (
                    "{{phase}}"
                )
            },
        ),
        Panel("Commit by step", "s", quantiles("commit_seconds", "step", ONE)),
        Panel("Redis round trips", "s", quantiles("redis_round_trip_seconds", selector=ONE)),
    ],
    by_instance=True,
)

ALL = (OVERVIEW, FRONTIER, POLITENESS, CLUSTER, REDIS, REPLICA)
