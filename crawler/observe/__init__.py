"""Metrics, status and explanations of a crawl, for people and for Prometheus. Nothing here affects what is crawled.

In the order in which data flows:

1. Inside a replica, `metrics`, `recent_failures` and `obstacles` (a full disk) receive the events of the crawl, and
   `loop_lag` measures how late the event loop is.
   `freshness_totals` adds up how fresh the copies of known pages were until their next visits.
2. A `health_record` is what each replica reports about itself to Redis. The replica with index 1 also writes the
   `summary` of the whole crawl there (`summary_writer`).
3. `collectors` passes the replica's state and the summary to Prometheus at each scrape.
4. `snapshot` reads these records back, for the live page and for `crawler status`, `top` and `crawl`. `condition` says
   in a few words whether the crawl makes progress, and if not, why.
5. `explain` explains why one URL was fetched or not, from the frontier and the output files; `explanation_rows` shows it.
   `refusals` says what keeps a URL out of the crawl, and what allows it. `counted_items` says how many items each
   data set has, how many were rejected, and the most frequent reason.
6. `resource_usage` reads what the crawl has used of CPU, memory, network and disk, for `crawler plan --from-crawl`.
7. `web` is the HTTP server of a replica: the live page, the pages about a domain or a URL, and `/metrics`.

This package and `worker` do not import each other; they share only the events (`crawler/events.py`). Other rooms
import: `collectors`, `condition`, `counted_items`, `explain`, `explanation_rows`, `health_record`, `loop_lag`,
`metrics`, `obstacles`, `recent_failures`, `refusals`, `resource_usage`, `snapshot`, `summary`, `summary_writer`, `web`.
"""
