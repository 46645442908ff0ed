"""A whole cluster in one process: real replicas, a real Valkey server, a simulated clock, and faults drawn from a seed.

In the order of a run: `scenario` draws its sizes and probabilities from the seed, and makes the web to be crawled.
`replica` starts and stops the program's own engine (`crawler.app.engine`) with simulated dependencies, each on its own
event loop (`loop`) with its own wrong clock. `network` connects them to the server (`wire`), and loses, delays and repeats
calls.
`faults` pauses, kills, disconnects and adds replicas, and stalls the server; `reshards` are operators who change the number
of shards, with their referee. `crowd` judges a thousand replicas, and what they cost. `ledger`,
`views` and `sites` are the referee: they see each call that the server ran and each request that a site received, and keep
their own records by the rules of the design, not by those of the scripts. `audit` compares the records with the queues in
Redis. `run` connects all of it. `mutants` proves that it can fail. `recrawl` runs thirty days of pages that are visited
again, with its own referee.

    python -m tests.simulation --runs 5000        the long run
    python -m tests.simulation --seed 7 -v        one run again, and what led to its breach
    python -m tests.simulation.recrawl           the long run of pages that are visited again
    python -m tests.simulation --seed 7 --crowd 1000    a thousand replicas join within a minute, and a hundred die at once
"""
