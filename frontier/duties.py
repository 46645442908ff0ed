"""Periodic duties that exactly one replica does in each interval.

The number of an interval is the server's time divided by the duty's period, so all replicas agree on it. The first
replica to claim a duty does it. It repeats `claim` while it works, and then reports the duty as done. If it dies, another
replica takes over when the claim expires. It may have died after the work and before the report, so it must be harmless
to do a duty twice.
"""

from __future__ import annotations

from frontier.clock import ServerClock
from frontier.scripts import CLAIM_DUTY
from frontier.store import Store, script_call

CLAIM_MS = 30_000
"""Milliseconds until a claim expires unless it is repeated. A dead holder is replaced after this time."""


class Duties:
    """The duties of a crawl, for one replica. `key`: the hash of the duties in Redis."""

    def __init__(self, store: Store, key: str, clock: ServerClock, replica: str) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._replica = replica

    def interval_of(self, every_s: float) -> int:
        """The number of the current interval of a duty that is due every `every_s` seconds."""
        return int(self._clock.now_ms() // (every_s * 1000))

    async def claim(self, duty: str, interval: int) -> bool:
        """Claim `duty` in `interval`, or extend the claim. Whether this replica holds it now. Raises RedisAway."""
        return await self._call(duty, interval, "work") == b"claimed"

    async def report_done(self, duty: str, interval: int) -> bool:
        """Record that `duty` is done in `interval`. False if another replica has taken it over. Raises RedisAway."""
        return await self._call(duty, interval, "done") == b"done"

    async def _call(self, duty: str, interval: int, word: str) -> bytes:
        call = script_call(CLAIM_DUTY, [self._key], duty, interval, self._replica, self._clock.now_ms(), CLAIM_MS, word)
        (reply,) = await self._store.send([call])
        answer: bytes = reply[0]
        return answer
