"""What must hold when many replicas join within a minute, and a tenth of them dies at once.

`Crowd` sees each view that a replica adopts. It finds the moment from which on all replicas have a view that includes every
living replica and no other, and how many shards each has in it.

An interval is that of the peer loop, in which each replica claims once (`scenario.interval_s`, 5 s). It is the same for any
number of replicas: `frontier.peers` lets many of them ask for commands and report less often, but not claim. Time
is counted from the start of the last replica, or from the deaths.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass

from frontier.peers import View, fair_shares
from tests.simulation.history import Breach

INTERVALS = 2.0
"""Within so many intervals, the first replica has the right view."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How views came to agree after something had happened, in intervals since then.

    `in_effect`: when the first replica adopted the right view; `held`: when the last one did. `least`, `most`: shards of a
    replica; `fair`: the share of a replica of mean capacity; `furthest`: by how much a replica differs from its own.
    """

    replicas: int
    in_effect: float
    held: float
    least: int
    most: int
    fair: float
    furthest: float

    def __str__(self) -> str:
        return (
            f"{self.replicas:,} replicas: the right view is in effect after {self.in_effect:.2f} intervals, all have it "
            f"after {self.held:.2f}; {self.least} to {self.most} shards each, on average {self.fair:.2f}, at most "
            f"{self.furthest:.2f} from the fair share"
        )


class Crowd:
    """The views of all replicas. `agreement`: the last one that was found, None while it is awaited."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._views: dict[str, View] = {}
        self._right: dict[str, float] = {}  # replica -> since when it has a right view
        self._living: Set[str] = frozenset()
        self._gone: Set[str] = frozenset()
        self._since = 0.0
        self._judged: tuple[int, bool] = (0, False)  # the last epoch, and whether its view is right
        self.agreement: Agreement | None = None

    def expect(self, living: Set[str], gone: Set[str], since: float) -> None:
        """Await views that include all `living` replicas and none that are `gone`. `since`: simulated seconds."""
        self._living, self._gone, self._since = living, gone, since
        self._right, self._judged, self.agreement = {}, (0, False), None
        for view in self._views.values():
            if view.me in living:
                self._look(view, since)

    def see(self, view: View, now: float) -> None:
        """A replica adopts `view`."""
        self._views[view.me] = view
        if view.me in self._living:
            self._look(view, now)

    def _look(self, view: View, now: float) -> None:
        if not self._is_right(view):
            self._right.pop(view.me, None)
            return
        self._right.setdefault(view.me, now)
        if self.agreement is None and len(self._right) == len(self._living):
            self.agreement = self._agreed(view)

    def _is_right(self, view: View) -> bool:
        if self._judged[0] != view.epoch:
            names = {member.replica for member in view.roster}
            self._judged = view.epoch, self._living <= names and not self._gone & names
        return self._judged[1]

    def _agreed(self, view: View) -> Agreement:
        since, last = self._since, max(self._right.values())
        loads, shares = Counter(view.owners), _shares(view)
        counts = [loads[name] for name in shares]
        furthest = max(abs(loads[name] - share) for name, share in shares.items())
        first = min(self._right.values())
        intervals = ((first - since) / self._interval_s, (last - since) / self._interval_s)
        return Agreement(len(counts), *intervals, min(counts), max(counts), len(view.owners) / len(counts), furthest)


def _shares(view: View) -> dict[str, float]:
    return fair_shares({member.replica: member.capacity for member in view.roster}, len(view.owners))


def judge(agreement: Agreement | None, what: str, adopted_within: float) -> Agreement:
    """Return `agreement`. Raises Breach unless the right view came into effect within two intervals, all had it within
    `adopted_within`, and no replica has a shard more or less than its fair share."""
    if agreement is None or agreement.in_effect > INTERVALS or agreement.held > adopted_within:
        raise Breach("I4", f"views do not agree in time {what}: {agreement}")
    if agreement.furthest >= 1 or math.isnan(agreement.furthest):
        raise Breach("I5", f"shards are not within one of the fair share {what}: {agreement}")
    return agreement
