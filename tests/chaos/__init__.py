"""Crawls under faults, judged by the synthetic web's own log: `python -m tests.chaos`, `python -m tests.chaos.cluster_run`.

On a single server: `run.py` sets the scene: a web, a Valkey that syncs its append-only file at every write, and replicas
that reach it through `proxy.py`. It kills, stops, cuts, adds and removes as `plan.py` says, and keeps a diary.
When the faults have ended and the crawl with them, `report.py` holds the web's log against the diary.

On a Redis Cluster: `cluster_run.py` sets the scene. `nodes.py` are the nodes, each behind a proxy. It does to them what
`plan.py` says, and notes it in the diary. `report.py` judges: besides the log, the archive, and how long domains on nodes
that were well had to wait.
"""
