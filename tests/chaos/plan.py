"""Which faults come when: all drawn from one seed before anything starts."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.chaos.diary import Kind


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
