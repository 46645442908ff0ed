"""A crawl under faults, judged by the synthetic web's own log: `python -m tests.chaos`.

`run.py` sets the scene: a web, a Valkey that syncs its append-only file at every write, and replicas that reach it
through `proxy.py`. `faults.py` kills, stops, cuts, adds and removes, and keeps a diary. When the faults have ended and
the crawl with them, `report.py` holds the web's log against the diary.
"""
