"""Metrics, status and explanations of a crawl, for people and for Prometheus. Nothing here affects what is crawled.

1. Inside a replica, `metrics` counts the events of the crawl, and exports the replica's state at each scrape. `health`
   is what each replica reports about itself to Redis.
2. The replica with index 1 also writes the `summary` of the whole crawl there.
3. `status` reads these records back, and says whether the crawl makes progress, and if not, why.
4. `explain` explains why one URL was fetched or not, from the frontier and the output files.
5. `web` is the HTTP server of a replica.

This package and `worker` do not import each other; they share only the events (`crawler/events.py`).
"""
