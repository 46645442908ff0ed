"""The dashboards about the crawl: how it goes, what is queued, and how sites are treated."""

from __future__ import annotations

from model import C, Dashboard, Panel, R, Row, latest, phases, quantiles, rate, stat

_LINK_RESULTS = (
    "Links offered to the frontier. accepted: new, queued; seen: queued or fetched before; recent: seen by the replica, "
    "so not sent; capped: the domain has reached its limit; outside: outside the crawl's scope."
)


def _rare(metric: str, by: str) -> dict[str, str]:
    """The rate of a counter by a label, and 0 in a crawl that has none."""
    return {f"sum by ({by}) (rate(peercrawl_{metric}{C}{R})) or vector(0)": "{{" + by + "}}"}


OVERVIEW = Dashboard(
    "peercrawl-overview",
    "peercrawl: Overview",
    "Is it going well?",
    [
        Row(
            "Now",
            [
                stat(
                    "Pages per second",
                    "reqps",
                    f"sum(rate(peercrawl_pages_total{C}{R}))",
                    "URLs settled or put off, by all replicas.",
                ),
                stat(
                    "Pages done",
                    "short",
                    'max(peercrawl_crawl_urls_settled_total{crawl="$crawl", outcome="done"})',
                    "URLs fetched and settled since the crawl began.",
                ),
                stat(
                    "URLs open",
                    "short",
                    'sum(max by (state) (peercrawl_queue_urls{crawl="$crawl", state!="dead"}))',
                    "URLs that are queued, leased or wait for a retry.",
                ),
                stat("Replicas", "short", f"max(peercrawl_replicas{C})", "Replicas in the current view."),
                stat(
                    "Shards unowned",
                    "short",
                    f"max(peercrawl_shards_unowned{C})",
                    "Shards with work that no replica leases from. Their domains are not crawled.",
                    1,
                ),
                stat(
                    "Failure ratio",
                    "percentunit",
                    f'sum(rate(peercrawl_pages_total{{crawl="$crawl", outcome=~"retry|dead"}}{R}))'
                    f" / sum(rate(peercrawl_pages_total{C}{R}))",
                    "Share of URLs that are retried later or given up.",
                    0.3,
                ),
            ],
        ),
        Row(
            "Pages",
            [
                Panel(
                    "Pages by outcome",
                    "reqps",
                    rate("pages_total", "outcome"),
                    "done: fetched; retry: again later; dead: given up; denied: not allowed, for example by robots.txt.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Pages by status",
                    "reqps",
                    rate("pages_total", "status"),
                    "Classes of HTTP status codes. none: there was no response.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Reasons",
                    "reqps",
                    {
                        f"topk(10, sum by (outcome, reason) (rate(peercrawl_page_reasons_total{C}{R})))": (
                            "{{outcome}} {{reason}}"
                        )
                    },
                    "The ten most frequent reasons why URLs were settled or put off.",
                    width=12,
                ),
                Panel(
                    "Response time",
                    "s",
                    quantiles("response_seconds"),
                    "From the request to the last byte of the response.",
                    width=12,
                ),
            ],
        ),
        Row(
            "Volume",
            [
                Panel(
                    "Received bytes",
                    "Bps",
                    rate("received_bytes_total", "replica"),
                    "Bytes of response bodies as received, by replica.",
                    stack=True,
                ),
                Panel("Queue", "short", latest("queue_urls", "state"), "URLs of the crawl by state.", stack=True),
                Panel("Links", "cps", rate("links_total", "result"), _LINK_RESULTS, stack=True),
            ],
        ),
        Row(
            "Incomplete and malformed pages",
            [
                Panel(
                    "Bodies truncated",
                    "cps",
                    rate("bodies_truncated_total", "reason"),
                    "Response bodies of which a part was not received, by reason.",
                    width=8,
                ),
                Panel(
                    "Pages cut",
                    "cps",
                    rate("pages_cut_total", "reason"),
                    "Pages of which links, text or other parts were left out, by reason.",
                    width=8,
                ),
                Panel(
                    "Responses repaired",
                    "cps",
                    rate("pages_repaired_total", "part"),
                    "Pages with a malformed response that was read, by its malformed part.",
                    width=8,
                ),
            ],
        ),
        Row(
            "Items",
            [
                Panel(
                    "Items",
                    "cps",
                    rate("items_total", "data_set"),
                    "Items that were found, by data set. See the alert PeercrawlNoItems.",
                    width=12,
                ),
                Panel(
                    "Items rejected",
                    "cps",
                    rate("items_rejected_total", "data_set"),
                    "Items that were not written, because a value is missing or of another type, by data set.",
                    width=12,
                ),
            ],
        ),
        Row(
            "What pages need",
            [
                Panel(
                    "Requests of handlers and browsers",
                    "reqps",
                    _rare("extra_requests_total", "kind"),
                    "Requests besides those for pages, by kind.",
                    width=8,
                ),
                Panel(
                    "Page requisites",
                    "reqps",
                    _rare("requisites_total", "reason"),
                    "Style sheets, images, scripts and fonts with archive.requisites, by reason.",
                    width=8,
                ),
                Panel(
                    "Pages in a browser",
                    "reqps",
                    _rare("rendered_pages_total", "why"),
                    "With [render], by why they were rendered.",
                    width=8,
                ),
                Panel(
                    "Busy browsers",
                    "short",
                    {f"sum(rate(peercrawl_render_seconds_total{C}{R}))": "browsers"},
                    "Browsers at work on average. replica.browsers limits them.",
                    width=12,
                ),
                Panel(
                    "Refused requests of pages in a browser",
                    "reqps",
                    _rare("render_refused_total", "reason"),
                    "By reason: what may not be loaded, robots.txt, limits.",
                    width=12,
                ),
            ],
        ),
        Row(
            "Known pages, with [recrawl]",
            [
                Panel(
                    "Copies in time",
                    "percentunit",
                    {
                        f"1 - sum(rate(peercrawl_visit_overdue_seconds_sum{C}[1h]))"
                        f" / sum(rate(peercrawl_copy_age_seconds_sum{C}[1h]))": "younger than their interval",
                    },
                    "Share of the time before the visits of the last hour.",
                    width=12,
                ),
                Panel(
                    "Known pages",
                    "short",
                    latest("known_pages", "state"),
                    "waiting: for the end of their interval; due: their visit is queued. If due grows, see the alert "
                    "PeercrawlVisitsOverdue.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Visits",
                    "reqps",
                    rate("page_visits_total", "found"),
                    "Visits of pages, by what they found.",
                    stack=True,
                ),
                Panel("Age of copies", "s", quantiles("copy_age_seconds"), "Time between two visits of a page."),
                Panel(
                    "Visits overdue",
                    "s",
                    quantiles("visit_overdue_seconds"),
                    "How long after the end of its interval a page is visited.",
                ),
            ],
        ),
    ],
)

FRONTIER = Dashboard(
    "peercrawl-frontier",
    "peercrawl: Frontier",
    "What is queued, and does it flow?",
    [
        Row(
            "Now",
            [
                stat("Seen domains", "short", f"max(peercrawl_seen_domains{C})", "Domains that the crawl has seen."),
                stat("Seen URLs", "short", f"max(peercrawl_seen_urls{C})", "URLs in the seen-set."),
                stat(
                    "Accepted URLs",
                    "short",
                    f"max(peercrawl_crawl_urls_accepted_total{C})",
                    "URLs queued since the crawl began.",
                ),
                stat(
                    "Dead URLs",
                    "short",
                    'max(peercrawl_queue_urls{crawl="$crawl", state="dead"})',
                    "URLs given up. `crawler dead list` shows them, `crawler dead requeue` queues them again.",
                ),
                stat(
                    "Longest overdue",
                    "s",
                    f"max(peercrawl_oldest_due_seconds{C})",
                    "How long ago the longest-waiting domain became due. If it grows, add replicas or concurrency.",
                    60,
                ),
                stat(
                    "Leases expired",
                    "short",
                    f"max(peercrawl_leases_expired_total{C})",
                    "Domains whose replica stopped renewing its lease, for example because it was killed.",
                ),
            ],
        ),
        Row(
            "Queue",
            [
                Panel(
                    "URLs by state",
                    "short",
                    latest("queue_urls", "state"),
                    "queued: not leased; leased: held by a replica; waiting: until a retry; dead: given up.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Domains by state",
                    "short",
                    latest("queue_domains", "state"),
                    "due: may be fetched now; resting: within their delay or backoff; leased: held by a replica.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Settled URLs",
                    "reqps",
                    {f"max by (outcome) (rate(peercrawl_crawl_urls_settled_total{C}{R}))": "{{outcome}}"},
                    "From the counters of the crawl, so each URL counts once.",
                ),
                Panel("Links offered", "cps", rate("links_total", "result"), _LINK_RESULTS, stack=True),
                Panel(
                    "Links dropped",
                    "cps",
                    rate("links_dropped_total", "reason"),
                    "Links that were not offered to the frontier, by reason.",
                    stack=True,
                ),
            ],
        ),
        Row(
            "Leases",
            [
                Panel("Domains leased", "ops", rate("domains_leased_total", "replica"), "Domains leased per second."),
                Panel("Lease calls", "s", quantiles("lease_call_seconds"), "Round trips that asked Redis for leases."),
                Panel(
                    "Turn delay",
                    "s",
                    quantiles("turn_late_seconds"),
                    "How long leased domains waited for a free slot after they were due. If it grows, raise concurrency.",
                ),
            ],
        ),
        Row(
            "Commits",
            [
                Panel(
                    "Commit by step",
                    "s",
                    quantiles("commit_seconds", "step"),
                    "push: links to the frontier; sink: records to disk; settle: results to the frontier.",
                ),
                Panel(
                    "Commit lag",
                    "s",
                    quantiles("commit_lag_seconds"),
                    "From the first result of a group to its settlement.",
                ),
                Panel(
                    "Commit backlog",
                    "short",
                    latest("commit_backlog_pages", "replica"),
                    "Results that wait for the next commit.",
                ),
            ],
        ),
    ],
)

POLITENESS = Dashboard(
    "peercrawl-politeness",
    "peercrawl: Politeness",
    "Are sites treated well, and which of them ask the crawl to slow down?",
    [
        Row(
            "Delays",
            [
                Panel(
                    "Delay between requests",
                    "s",
                    quantiles("politeness_delay_seconds"),
                    "Time between two requests to the same domain.",
                    width=12,
                ),
                Panel(
                    "Response time",
                    "s",
                    quantiles("response_seconds"),
                    "Sites that respond more slowly under the crawl need longer delays.",
                    width=12,
                ),
            ],
        ),
        Row(
            "Backoff",
            [
                Panel(
                    "Backoffs by reason",
                    "cps",
                    rate("backoffs_total", "reason"),
                    "Domains that are left alone for a while, after errors or because they asked for it (429, 503, "
                    "Retry-After).",
                    stack=True,
                ),
                Panel("Duration of backoffs", "s", quantiles("backoff_seconds"), "How long domains are left alone."),
                Panel(
                    "Backoffs per page",
                    "percentunit",
                    {f"sum(rate(peercrawl_backoffs_total{C}{R})) / sum(rate(peercrawl_pages_total{C}{R}))": "share"},
                    "Above 10 %, the crawl is too fast for its sites: raise politeness.delay.",
                    red_from=0.1,
                ),
            ],
        ),
        Row(
            "robots.txt",
            [
                Panel(
                    "Decisions",
                    "cps",
                    rate("robots_decisions_total", "verdict"),
                    "URLs checked against robots.txt. postpone: the file is not known yet.",
                    width=12,
                    stack=True,
                ),
                Panel(
                    "Files",
                    "cps",
                    rate("robots_files_total", "access"),
                    "robots.txt files fetched or failed, by the resulting access.",
                    width=12,
                    stack=True,
                ),
            ],
        ),
        Row(
            "Network",
            [
                Panel(
                    "Phases of a fetch, 99 %",
                    "s",
                    phases(0.99),
                    "dns, connect and tls occur only on new connections.",
                    width=24,
                )
            ],
        ),
    ],
)
