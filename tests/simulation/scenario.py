"""The parameters of a run, drawn from its seed: sizes, settings, and the probabilities of faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal

SLACK_S = 0.003
"""Redis counts whole milliseconds, so a delay may be one shorter at either end."""

STALE_S = 150.0
"""For how long a replica that is paused or cut off may use its last reading of the server's clock, at most."""

RARE = 0.1
"""The chance that a run has `BRIEF_S` for its interval, the chance that its pages are a chain, and the chance that it has
`MANY_RESTARTS`."""

MANY_RESTARTS = 20
"""So many restarts that some lose the repetition of what others have lost."""

BRIEF_S = 0.2
"""So short an interval that several epochs pass while an answer is awaited, or while the server stalls."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`faulty_s`: simulated seconds during which faults happen; afterwards everything works and the crawl must end.

    `exchange_fault`: the chance that an exchange with Redis goes wrong. `fault_every_s`: mean time between two faults of
    replicas. `slow`: the chance that one way of an exchange is slow. `lateness`: the chance that a timer rings late.
    `drift`: seconds that a replica's clock gains or loses in one, at most. `parallel`: requests to a domain without a delay
    in flight at once. `max_pages`: the limit of the crawl, 0 for none; `limited_at_s`: when it is set, to as many more
    pages than are settled by then, 0 for before the crawl. `scope`: by what links belong to the crawl.
    `restarts`: how often the server is restarted and has lost its last writes, up to a second's.
    `is_chain`: there is one seed, and each page links to the next one only, so that one URL is open at a time.
    `nodes`: of the Redis Cluster; 1 is a single server. `joined_s`: within how many seconds the replicas join; `deaths`:
    how many of them die at once then, without leaving. `audit_every`: events between two comparisons of Redis
    with the ledger.
    `pack_above`: URLs of a domain above which the others are packed. `workers`: requests in flight in a replica.
    `reshards`: how often an operator gives the crawl another number of shards, or completes or undoes what another began.
    """

    seed: int
    faulty_s: float
    replicas: int
    shards: int
    domains: int
    urls: int
    interval_s: float
    lease_ms: int
    delay_ms: int
    batch: int
    domain_cap: int
    exchange_fault: float
    fault_every_s: float
    slow: float
    lateness: float
    drift: float
    parallel: int
    max_pages: int
    scope: Literal["seeds", "domains"]
    is_chain: bool
    restarts: int
    limited_at_s: float
    nodes: int = 1
    joined_s: float = 2.0
    workers: int = 8
    deaths: int = 0
    audit_every: int = 500
    pack_above: int = 0
    reshards: int = 0

    @property
    def slack_s(self) -> float:
        """By how much a replica may be wrong about the time of the server."""
        return SLACK_S + self.drift * STALE_S

    @classmethod
    def crowd(cls, replicas: int, seed: int = 7) -> Scenario:
        """Many replicas with a few domains each, that join within a minute. Then a tenth of them dies at once. While they
        join, and after the deaths, exchanges with Redis go wrong and replicas are paused, cut off and killed. Faults end 15
        seconds before the last join: what a lost call holds up is over by then, and views are those of the crowd alone."""
        usual = cls.draw(seed, faulty_s=45.0, replicas=replicas, interval_s=5.0, nodes=1, restarts=1)
        few = {"shards": 2 * replicas, "domains": 2 * replicas, "urls": 30 * replicas}
        faults = {"exchange_fault": 0.01, "slow": 0.0, "lateness": 0.0, "fault_every_s": 5.0, "max_pages": 0}
        ways = {
            "lease_ms": 10_000,
            "delay_ms": 1_500,
            "is_chain": False,
            "domain_cap": 0,
            "scope": "seeds",
            "drift": 1e-4,
        }
        crowd = {"joined_s": 60.0, "deaths": replicas // 10, "audit_every": 500 * replicas}
        return replace(usual, **few, **faults, **ways, **crowd)  # type: ignore[arg-type]

    @classmethod
    def draw(
        cls,
        seed: int,
        faulty_s: float | None = None,
        replicas: int | None = None,
        interval_s: float | None = None,
        is_chain: bool = False,
        nodes: int | None = None,
        restarts: int | None = None,
    ) -> Scenario:
        """The scenario of `seed`; `faulty_s`, `replicas`, `interval_s`, `nodes` and `restarts` replace what would have been
        drawn, and so does `is_chain` where it is true."""
        rng = random.Random(f"scenario {seed}")
        parallel, delay_ms = rng.choice(((1, 1), (1, 1), (1, 0), (3, 0), (3, 1)))
        crowd = rng.random() < 0.02
        drawn = 200 if crowd else int(3 * 8 ** rng.random())
        limit = random.Random(f"limit {seed}")  # of its own, so that seeds without a limit are as they were before
        usual = cls(
            seed=seed,
            faulty_s=faulty_s or rng.choice((20.0, 60.0, 120.0)),
            replicas=replicas or drawn,
            shards=rng.choice((8, 16, 32)),
            domains=rng.randint(5, 30),
            urls=rng.randint(*rng.choice(((4, 12), (30, 150), (30, 150)))),  # with few, each may be the last one
            interval_s=rng.choice((1.0, 5.0)),
            lease_ms=rng.choice((4_000, 10_000, 30_000)),
            delay_ms=delay_ms * rng.choice((200, 1_000, 2_000)),
            batch=rng.choice((1, 4, 32)),
            domain_cap=rng.choice((0, 0, 0, 8)),
            exchange_fault=rng.choice((0.0, 0.05, 0.1)),
            fault_every_s=rng.choice((0.5, 2.0, 10.0)),
            slow=rng.choice((0.0, 0.02, 0.2)),
            lateness=rng.choice((0.0, 0.02)),
            drift=rng.choice((0.0, 1e-4, 1e-3)),
            parallel=parallel,
            max_pages=limit.choice((0, limit.randint(1, 60))),
            scope=limit.choice(("seeds", "seeds", "domains")),
            is_chain=False,
            restarts=random.Random(f"restarts {seed}").choice((0, 0, 1, 3)),
            limited_at_s=random.Random(f"limited {seed}").choice((0.0, 5.0, 10.0)),
        )
        rare = random.Random(f"rare {seed}")  # of its own, for the same reason
        is_brief, draws_chain, urls = rare.random() < RARE, rare.random() < RARE, rare.randint(4, 20)
        if is_chain or draws_chain:
            # Its settings name the domains, because with "seeds" each domain of a chain would need a seed.
            usual = replace(usual, is_chain=True, scope="domains", urls=urls)
        if rare.random() < RARE:
            usual = replace(usual, restarts=MANY_RESTARTS)
        if restarts is not None:
            usual = replace(usual, restarts=restarts)
        if usual.restarts >= MANY_RESTARTS:
            usual = replace(usual, max_pages=0)  # which pages were settled is uncertain for most of the time
        drawn_nodes = random.Random(f"nodes {seed}").choice((1, 1, 3))
        if random.Random(f"pack {seed}").choice((False, False, True)):
            # What stays unpacked is at least two batches, and of few domains each has many URLs.
            usual = replace(usual, pack_above=2, batch=1, domains=5)
        return replace(
            usual,
            nodes=nodes or drawn_nodes,
            interval_s=interval_s or (BRIEF_S if is_brief else usual.interval_s),
        )
