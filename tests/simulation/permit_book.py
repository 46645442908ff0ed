"""What the referee knows of the page budget: the permits that each replica holds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from frontier.scripts import Call, Reply
from tests.simulation.history import History


@dataclass(slots=True)
class Permits:
    """What a replica holds of the page budget, by its call with the highest `number`."""

    number: int
    permits: int
    until_ms: int


class PermitBook:
    """`limit`: of the crawl, 0 for none. `check(holds, invariant, message, about)` raises Breach unless `holds`.

    `done`: URLs that were ever settled as done. If the server has lost that, it will be repeated.

    `most`: how many pages there may be, more than the limit if as many were requested before all replicas knew it.
    """

    def __init__(self, history: History, limit: int, check: Callable[[bool, str, str, str], None]) -> None:
        self._history = history
        self.done: set[str] = set()
        self._check = check
        self.limit = limit
        self.most = limit or math.inf
        self._permits: dict[str, Permits] = {}
        self._lapsed_ms = 0  # permits that expired before may have been withdrawn

    def reserve(self, replica: str, call: Call, reply: Reply) -> None:
        """A call that arrives after a later one changes nothing, and no call takes permits away that its replica keeps."""
        self._history.note(replica, "reserve", (call.arguments, reply))
        number, keep, wanted, until_ms = (int(call.arguments[at]) for at in (1, 4, 5, 8))
        self._lapsed_ms = max(self._lapsed_ms, int(call.arguments[9]))
        last = self._permits.get(replica)
        if last is None or number > last.number:
            self._check(int(reply[1]) >= keep, "limit", f"{replica} keeps {keep} permits, not {reply}", replica)
            is_early = self.limit > 0 and self.most == math.inf and int(reply[1]) > max(0, keep)
            self._check(not is_early, "limit", f"{replica} gets permits before pages are counted: {reply}", replica)
            self._permits[replica] = Permits(number, int(reply[1]), until_ms)
        elif last.until_ms >= self._lapsed_ms:
            message = f"call {number} of {replica} changes its permits from {last} to {reply}"
            self._check(int(reply[1]) == last.permits, "limit", message, replica)
        if wanted < 0:
            del self._permits[replica]

    def set_limit(self, pages: int) -> None:
        """Record that the crawl's limit is set to `pages` during the crawl."""
        self._history.note("operator", "limit", pages)
        self.limit = pages

    def recount(self, replica: str, call: Call, reply: Reply) -> None:
        """Pages are counted once every replica needs permits. From then on, no more are requested than the limit allows."""
        self._history.note(replica, "recount", (call.arguments, reply))
        if reply[0] == b"recounted" and self.most == math.inf:
            held = {name: one.permits for name, one in self._permits.items() if one.until_ms >= self._lapsed_ms}
            free = [name for name, permits in held.items() if permits < 0]
            self._check(not free, "limit", f"pages are counted while {free} need no permits", replica)
            self.most = max(self.limit, len(self.done) + sum(held.values()))
