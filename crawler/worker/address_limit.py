"""The address gate in the turns of visits: a visit that has to wait for its moment goes back on the schedule.

A moment is reserved for one request to one network. It is kept with the visit while the visit waits, so that the turn
that comes at that moment goes ahead without asking again.
"""

from __future__ import annotations

from crawler.errors import FetchFailed
from crawler.fetch.client import Fetcher
from crawler.redis_retry import Patience
from crawler.worker.visit import Visit
from frontier.clock import Clock
from politeness.address_rate_limit import HORIZON_S, Gate, network_of

KEPT_S = 5.0
"""A moment that was not used for so long after it came is given up: those after it would find it crowded."""


class Gatekeeper:
    """Asks the gate for visits. `gate` None lets everybody through."""

    def __init__(self, gate: Gate | None, fetcher: Fetcher, patience: Patience, clock: Clock) -> None:
        self.gate = gate
        self._fetcher = fetcher
        self._patience = patience
        self._clock = clock

    async def lets(self, visit: Visit, url: str) -> bool:
        """Whether `visit` may request `url` now. If not, the visit's next turn is set to when it may; a visit that would
        have to wait long gives its lease back."""
        gate = self.gate
        if gate is None:
            return True
        try:
            network = network_of(await self._fetcher.locate(url))
        except FetchFailed:
            return True  # the request itself will fail for this reason, without leaving this machine
        moment, visit.moment = visit.moment, None
        if moment is not None and moment[0] == network and self._clock.monotonic() <= moment[1] + KEPT_S:
            return True
        wait_s = await self._patience.insist(lambda: gate.reserve(network))
        if wait_s is None:
            visit.next_at = self._clock.monotonic() + HORIZON_S
            visit.closing = True
            return False
        if wait_s <= 0:
            return True
        visit.next_at = self._clock.monotonic() + wait_s
        visit.moment = (network, visit.next_at)
        return False
