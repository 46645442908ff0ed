"""The dashboards about the machinery: the cluster, Redis, and single replicas."""

from __future__ import annotations

from model import ONE, C, Dashboard, Panel, R, Row, latest, phases, quantiles, rate, stat

CLUSTER = Dashboard(
    "peercrawl-cluster",
    "peercrawl: Cluster",
    "Which replica owns what, and do all agree?",
    [
        Row(
            "Now",
            [
                stat("Replicas", "short", f"max(peercrawl_replicas{C})", "Replicas in the current view."),
                stat("Epoch", "none", f"max(peercrawl_view_epoch{C})", "Each new view has a higher epoch."),
                stat(
                    "Views per epoch",
                    "short",
                    f'count(count_values("checksum", peercrawl_view_checksum{C}))'
                    f' / count(count_values("epoch", peercrawl_view_epoch{C}))',
                    "1: all replicas agree. If it stays above 1 for minutes, see the runbook.",
                    1.01,
                ),
                stat(
                    "Shards unowned",
                    "short",
                    f"max(peercrawl_shards_unowned{C})",
                    "Shards with work that no replica leases from.",
                    1,
                ),
                stat(
                    "Load imbalance",
                    "none",
                    f"max(peercrawl_shards_owned{C}) / avg(peercrawl_shards_owned{C})",
                    "Shards of the replica with the most, divided by the mean. 1: equal shares.",
                    1.2,
                ),
                stat(
                    "Calls fenced",
                    "short",
                    f"sum(increase(peercrawl_leases_fenced_total{C}[$__range]))",
                    "Lease calls refused because Redis knows a newer view.",
                ),
            ],
        ),
        Row(
            "Shards",
            [
                Panel(
                    "Shards owned",
                    "short",
                    latest("shards_owned", "replica"),
                    "Shards that the view assigns to each replica.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Shards moved",
                    "short",
                    rate("shards_moved_total", "direction"),
                    "Shards taken and dropped per second, with new views.",
                    width=12,
                ),
            ],
        ),
        Row(
            "Leases",
            [
                Panel(
                    "Handover time",
                    "s",
                    quantiles("handover_seconds"),
                    "From a view that removes shards to the return of their last lease.",
                ),
                Panel(
                    "Stale leases",
                    "cps",
                    rate("stale_leases_total", "replica"),
                    "Leases that ended before their results were settled. Their URLs are fetched again.",
                ),
                Panel(
                    "Leases expired",
                    "short",
                    {f"max(increase(peercrawl_leases_expired_total{C}{R}))": "expired"},
                    "Leases that were not renewed in time, for example because a replica was killed.",
                ),
            ],
        ),
        Row(
            "After failovers and steps of the clock",
            [
                Panel(
                    "Shards with repeated writes",
                    "short",
                    {f"sum by (replica) (increase(peercrawl_shards_repeated_total{C}{R}))": "{{replica}}"},
                    "Shards of servers that were restarted or replaced. Replicas repeat their last writes there.",
                ),
                Panel(
                    "URLs left to others",
                    "short",
                    {f"sum by (replica) (increase(peercrawl_urls_unsettled_total{C}{R}))": "{{replica}}"},
                    "Their settlement was lost, and others had leased them already. Their first pages are removed.",
                ),
                Panel(
                    "Corrections of crawl time",
                    "short",
                    {f"sum by (replica) (increase(peercrawl_crawl_time_corrections_total{C}{R}))": "{{replica}}"},
                    "Steps of the Redis server's clock. One replica corrects each step.",
                ),
            ],
        ),
        Row(
            "Work by replica",
            [
                Panel(
                    "Pages",
                    "reqps",
                    rate("pages_total", "replica"),
                    "URLs settled or put off by each replica.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Leased domains",
                    "short",
                    latest("leased_domains", "replica"),
                    "Domains leased to each replica.",
                    width=12,
                    stack=True,
                ),
            ],
        ),
    ],
)

REDIS = Dashboard(
    "peercrawl-redis",
    "peercrawl: Redis",
    "Is Redis fast, and does it have enough memory?",
    [
        Row(
            "Now",
            [
                stat("Memory", "bytes", f"max(peercrawl_redis_memory_bytes{C})", "Memory that Redis uses."),
                stat(
                    "Expected memory",
                    "bytes",
                    f"max(peercrawl_redis_expected_memory_bytes{C})",
                    "What this crawl should use, by the sizing formula.",
                ),
                stat(
                    "Memory limit",
                    "bytes",
                    f"max(peercrawl_redis_max_memory_bytes{C})",
                    "maxmemory of Redis. 0: no limit.",
                ),
                stat(
                    "Unavailable",
                    "short",
                    f"max(peercrawl_redis_away{C})",
                    "1 while a replica cannot use Redis. It waits until it can.",
                    1,
                ),
                stat(
                    "Outages",
                    "short",
                    f"sum(increase(peercrawl_redis_outages_total{C}[$__range]))",
                    "Outages that replicas noticed in the time shown.",
                ),
                stat(
                    "Bytes per seen URL",
                    "bytes",
                    f"max(peercrawl_redis_memory_bytes{C}) / max(peercrawl_seen_urls{C})",
                    "All memory of Redis, divided by the URLs in the seen-set.",
                ),
            ],
        ),
        Row(
            "Memory",
            [
                Panel(
                    "Memory",
                    "bytes",
                    {
                        f"max(peercrawl_redis_memory_bytes{C})": "used",
                        f"max(peercrawl_redis_expected_memory_bytes{C})": "expected",
                    },
                    "Memory used, and memory expected by the sizing formula.",
                    width=24,
                )
            ],
        ),
        Row(
            "Round trips",
            [
                Panel(
                    "Rate",
                    "ops",
                    rate("redis_round_trip_seconds_count", "replica"),
                    "Round trips per second. Each carries a batch of calls.",
                    stack=True,
                ),
                Panel(
                    "Duration",
                    "s",
                    quantiles("redis_round_trip_seconds"),
                    "Time of a round trip, as the replicas see it.",
                ),
                Panel("Errors", "cps", rate("redis_errors_total", "replica"), "Round trips that failed."),
            ],
        ),
        Row(
            "Nodes of a Redis Cluster",
            [
                Panel(
                    "Nodes away",
                    "short",
                    latest("redis_node_away", "node"),
                    "1 while a replica gets no answer from the node. Only domains of its shards wait.",
                    width=12,
                ),
                Panel(
                    "Share of shards away or lost",
                    "percentunit",
                    {
                        f"max(peercrawl_shards_away{C}) / max(peercrawl_shards{C})": "away",
                        f"max(peercrawl_shards_lost{C}) / max(peercrawl_shards{C})": "lost",
                    },
                    "away: their nodes do not answer. lost: Redis has lost their data; see the runbook.",
                    width=12,
                ),
                Panel(
                    "Links in outboxes",
                    "short",
                    {f"max(peercrawl_outbox_links{C})": "links"},
                    "Links that wait until the nodes of their shards answer, and have the replicas that are asked for.",
                    width=12,
                ),
                Panel(
                    "Parked results",
                    "short",
                    latest("parked_pages", "replica"),
                    "Results of requests that were in flight when a node went away. They are settled when it is back.",
                    width=12,
                    stack=True,
                ),
            ],
        ),
    ],
)

REPLICA = Dashboard(
    "peercrawl-replica",
    "peercrawl: Replica",
    "What does a single process do?",
    [
        Row(
            "Now",
            [
                stat(
                    "Index",
                    "none",
                    f"max(peercrawl_peer_index{ONE})",
                    "Index of the replica in the view. 0: it is not in the view and does not crawl.",
                ),
                stat("Shards", "short", f"sum(peercrawl_shards_owned{ONE})", "Shards that the view assigns to it."),
                stat("Requests", "short", f"sum(peercrawl_requests_in_flight{ONE})", "Requests in flight."),
                stat("Leased domains", "short", f"sum(peercrawl_leased_domains{ONE})", "Domains leased to it."),
                stat("Leased URLs", "short", f"sum(peercrawl_leased_urls{ONE})", "URLs leased to it."),
                stat("Paused", "short", f"max(peercrawl_paused{ONE})", "1 while an operator has paused the crawl."),
            ],
        ),
        Row(
            "Work",
            [
                Panel(
                    "Pages",
                    "reqps",
                    rate("pages_total", "outcome", ONE),
                    "done: fetched; retry: again later; dead: given up; denied: not allowed.",
                    stack=True,
                ),
                Panel(
                    "Bytes",
                    "Bps",
                    {
                        f"sum(rate(peercrawl_received_bytes_total{ONE}{R}))": "received",
                        f"sum(rate(peercrawl_sink_bytes_total{ONE}{R}))": "archived",
                    },
                    "Response bodies received, and bytes written to the archive.",
                ),
                Panel(
                    "Free disk space",
                    "bytes",
                    {f"peercrawl_disk_free_bytes{ONE}": "{{replica}}"},
                    "Bytes that are free for the output.",
                ),
                Panel(
                    "Phases of a fetch, median",
                    "s",
                    phases(0.5, ONE),
                    "dns, connect and tls occur only on new connections.",
                ),
            ],
        ),
        Row(
            "Process",
            [
                Panel(
                    "CPU",
                    "percentunit",
                    {f"sum by (replica) (rate(process_cpu_seconds_total{ONE}{R}))": "{{replica}}"},
                    "100 % is one core. A replica uses one core for crawling, and some more for compressing and parsing.",
                    width=12,
                ),
                Panel(
                    "Memory",
                    "bytes",
                    {f"max by (replica) (process_resident_memory_bytes{ONE})": "{{replica}}"},
                    "Resident memory.",
                    width=12,
                ),
                Panel(
                    "Event loop lag",
                    "s",
                    {
                        **quantiles("event_loop_lag_seconds", selector=ONE),
                        f"max(peercrawl_event_loop_lag_max_seconds{ONE})": "longest so far",
                    },
                    "How late the event loop runs its timers. It grows when the CPU is the limit.",
                    width=12,
                ),
                Panel(
                    "Open files",
                    "short",
                    {
                        f"max by (replica) (process_open_fds{ONE})": "{{replica}}",
                        f"min(process_max_fds{ONE})": "limit",
                    },
                    "Open files and sockets, and the lowest limit.",
                    width=12,
                ),
            ],
        ),
        Row(
            "Failures",
            [
                Panel(
                    "Defects",
                    "cps",
                    rate("defects_total", "stage", ONE),
                    "Unexpected errors while handling data from sites. Each is logged with its URL.",
                ),
                Panel(
                    "Hooks and handlers",
                    "cps",
                    rate("hook_failures_total", "hook", ONE) | rate("handler_failures_total", "replica", ONE),
                    "Failures of your page hooks, by hook, and of handlers. Each is logged with its URL.",
                ),
                Panel(
                    "DNS, machine, proxy",
                    "cps",
                    rate("own_failures_total", "kind", ONE),
                    "Requests that failed because of your DNS, this machine (descriptors, memory, ports, no route) or your "
                    "proxy. Their domains wait.",
                ),
                Panel(
                    "Archive full",
                    "cps",
                    rate("sink_blocked_total", "replica", ONE),
                    "Writes refused because there was no room. The replica waits until there is.",
                ),
            ],
        ),
        Row(
            "Storage",
            [
                Panel(
                    "Commit by step",
                    "s",
                    quantiles("commit_seconds", "step", ONE),
                    "push: links to the frontier; sink: records to disk; settle: results to the frontier.",
                    width=12,
                ),
                Panel(
                    "Redis round trips",
                    "s",
                    quantiles("redis_round_trip_seconds", selector=ONE),
                    "Time of a round trip to Redis. Each carries a batch of calls.",
                    width=12,
                ),
            ],
        ),
    ],
    by_replica=True,
)
