"""Metrics, status and explanations of a crawl, for people and for Prometheus. Nothing here affects what is crawled.

In the order in which data flows:

1. Inside a replica, `metrics` counts the events of the crawl, and exports the replica's state at each scrape. `health` is
   what each replica reports about itself to Redis.
2. The replica with index 1 also writes the `summary` of the whole crawl there.
3. `status` reads these records back, for the live page and for `crawler status`, `top` and `crawl`. It says in a few words
   whether the crawl makes progress, and if not, why.
4. `explain` explains why one URL was fetched or not, from the frontier and the output files.
5. `web` is the HTTP server of a replica: the live page, the pages about a domain or a URL, and `/metrics`.

This package and `worker` do not import each other; they share only the events (`crawler/events.py`).
"""
