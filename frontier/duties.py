"""Periodic duties that exactly one replica does in each interval.

The number of an interval is the server's time divided by the duty's period, so all replicas agree on it. Whoever claims
first does the duty; it must `keep` it while it works, and reports it as done. A holder that dies is replaced when its
claim lapses; since it may have died after its work and before its report, a duty must be harmless when done twice.
"""

from __future__ import annotations

from frontier.clock import ServerClock
from frontier.scripts import CLAIM_DUTY
from frontier.store import Store, run

CLAIM_MS = 30_000
"""How long a claim stands without being kept: the time after which a dead holder is replaced."""


class Duties:
    """The duties of a crawl, as one replica sees them. `key` names their hash in Redis."""

    def __init__(self, store: Store, key: str, clock: ServerClock, replica: str) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._replica = replica

    def interval_of(self, every_s: float) -> int:
        """The number of the interval that is now, for a duty that is due each `every_s` seconds."""
        return int(self._clock.now_ms() // (every_s * 1000))

    async def claim(self, duty: str, interval: int) -> bool:
        """Whether `duty` is ours in `interval`; claiming again keeps it. Raises RedisAway."""
        return await self._call(duty, interval, "work") == b"claimed"

    async def report_done(self, duty: str, interval: int) -> bool:
        """Nobody shall do `duty` again in `interval`. False if somebody else has taken it over. Raises RedisAway."""
        return await self._call(duty, interval, "done") == b"done"

    async def _call(self, duty: str, interval: int, word: str) -> bytes:
        call = run(CLAIM_DUTY, [self._key], duty, interval, self._replica, self._clock.now_ms(), CLAIM_MS, word)
        (reply,) = await self._store.send([call])
        answer: bytes = reply[0]
        return answer
