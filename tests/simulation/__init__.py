"""The whole cluster in one process: true replicas, a true Valkey server, a clock that we turn, and faults from a seed.

In the order in which a run goes: `scenario` draws the sizes and the chances of a run from its seed; `world` makes the
web to be crawled; `replica` starts and stops the program's own engine (`crawler.app.engine`) with simulated seams, each
on an event loop of its own (`loop`) whose clock is wrong in its own way; `network` stands between them and the
server (`wire`) and loses, delays and doubles calls; `faults` pauses, kills, cuts off and adds replicas. `ledger` and
`sites` are the referee: they see each call that the server carried out and each request that a site received, and keep
their own records by the rules of the design, not by those of the scripts. `audit` compares these with every key in Redis.
`run` puts all of it together; `mutants` proves that it can fail.

    python -m tests.simulation --runs 5000        the long run
    python -m tests.simulation --seed 7 -v        one run again, and what led to its breach
"""
