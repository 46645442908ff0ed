"""Which faults of replicas, of the store and of nodes come when: all drawn from one seed before anything starts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.chaos.diary import Kind, NodeKind


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds` of faults, among them so many of each sort, and `reshards`, every other one with its command killed;
    `replicas` at a time; `delay_s` between two requests to a domain; the world's `domains` and `pages`, a domain's share in
    proportion to 1 / rank ** `zipf`."""

    seconds: float
    kills: int
    restarts: int
    stops: int
    proxy_faults: int
    changes: int
    replicas: int
    domains: int
    pages: int
    seed: int = 1
    reshards: int = 0
    zipf: float = 1.0
    delay_s: float = 0.1
    lease_s: float = 3.0
    interval_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Planned:
    """`kind` at `at` seconds from the start, for `seconds` where it lasts."""

    at: float
    kind: Kind
    seconds: float


def plan(options: Options, rng: random.Random) -> list[Planned]:
    """The faults in order of time. Each sort is spread evenly, with each one moved by chance within its share."""

    def spread(count: int) -> list[float]:
        return [(number + rng.random()) * options.seconds / count for number in range(count)]

    lease_s = options.lease_s
    planned = [Planned(at, Kind.KILL, 0.0) for at in spread(options.kills)]
    planned += [Planned(at, Kind.STOP, lease_s + rng.uniform(0.5, 3.0)) for at in spread(options.stops)]
    planned += [Planned(at, Kind.RESTART, rng.uniform(0.0, 2.0)) for at in spread(options.restarts)]
    planned += [Planned(at, rng.choice((Kind.LEAVE, Kind.JOIN)), 0.0) for at in spread(options.changes)]
    for at in spread(options.proxy_faults):
        kind = rng.choice((Kind.CUT, Kind.CUT, Kind.SWALLOW, Kind.DELAY))
        planned.append(Planned(at, kind, 1.0 if kind is Kind.CUT else rng.uniform(0.5, lease_s + 3.0)))
    for number, at in enumerate(spread(options.reshards)):
        planned.append(Planned(at, Kind.RESHARD, rng.uniform(0.5, 5.0) if number % 2 else 0.0))
    return sorted(planned, key=lambda fault: fault.at)


MOVES_A_MINUTE = 20
"""Slots that change their node."""


@dataclass(frozen=True, slots=True)
class NodeOptions:
    """`seconds` of faults. `kills` and `stops`: of masters; `failovers` by hand; `cuts` of the network to a node; `grows`:
    whether a node joins and leaves again; `replica_kills`: of replicas of the crawler, of which there are `replicas`.

    `is_durable`: nodes sync each write, and the crawler waits for the acknowledgement of a replica of each node.
    Otherwise they sync every second, and the replica of a master that is killed lags behind.
    """

    seconds: float
    kills: int
    stops: int
    failovers: int
    cuts: int
    grows: bool
    replica_kills: int
    domains: int
    pages: int
    delay_s: float
    is_durable: bool = True
    replicas: int = 4
    seed: int = 1
    lease_s: float = 3.0
    interval_s: float = 0.5
    node_timeout_s: float = 2.0

    @classmethod
    def of_length(cls, seconds: float, is_durable: bool = True, seed: int = 1, replicas: int = 4) -> NodeOptions:
        """So many faults as `seconds` have room for: in 300 s, those that the whole run is meant to have. All domains have
        as many pages, for about a fifth longer than the faults last, so that no node runs out of work before."""
        share = seconds / 300
        domains, delay_s = 24, 0.9  # 27 requests a second, and well below 2 s between two waves of them
        return cls(
            seconds=seconds,
            kills=max(1, round(5 * share)),
            stops=max(1, round(5 * share)),
            failovers=max(1, round(5 * share)),
            cuts=max(1, round(5 * share)),
            grows=seconds >= 60,
            replica_kills=max(2, round(30 * share)),
            domains=domains,
            pages=round(1.2 * seconds / delay_s) * domains,
            delay_s=delay_s,
            is_durable=is_durable,
            replicas=replicas,
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class PlannedNodeFault:
    """`kind` not before `at` seconds from the start, for `seconds` where it lasts."""

    at: float
    kind: NodeKind
    seconds: float = 0.0


def plan_outages(options: NodeOptions, rng: random.Random) -> list[PlannedNodeFault]:
    """The faults of nodes in order of time, in shuffled order of kinds. One has to end before the next begins, as the
    cluster could not elect a master without a majority, or without a replica that is up to date."""
    kinds = [
        *[NodeKind.KILL] * options.kills,
        *[NodeKind.STOP] * options.stops,
        *[NodeKind.FAILOVER] * options.failovers,
        *[NodeKind.CUT] * options.cuts,
    ]
    rng.shuffle(kinds)
    if options.grows:
        kinds.insert(len(kinds) // 3, NodeKind.JOIN)
        kinds.insert(2 * len(kinds) // 3, NodeKind.LEAVE)
    return [
        PlannedNodeFault(at * options.seconds / len(kinds), kind, _lasts_s(kind, options, rng))
        for at, kind in enumerate(kinds)
    ]


def _lasts_s(kind: NodeKind, options: NodeOptions, rng: random.Random) -> float:
    """A stopped or dead master comes back after its replica has taken over; a cut is longer than a lease or shorter."""
    if kind in (NodeKind.KILL, NodeKind.STOP):
        return options.node_timeout_s * rng.uniform(2.0, 3.0)
    return rng.uniform(1.0, options.lease_s + 2.0) if kind is NodeKind.CUT else 0.0
