"""The budget of a crawl: how many pages all replicas together may fetch.

A replica takes a permit before it fetches a page, from a small store of its own that `refresh` fills up. Used and held
permits together never pass the limit, so a crawl of 100 pages fetches 100, with any number of replicas.

Pages are counted without a limit, too, so that one which is set in mid-crawl is a limit on the whole crawl.
"""

from __future__ import annotations

from frontier.clock import ServerClock
from frontier.scripts import SPEND
from frontier.store import Store, run

PERMIT_TTL_MS = 60_000
"""After this long without a refresh the permits of a lost replica are free again."""


REPORTED_AT_ONCE = 500
"""Without a limit Redis is told of so many pages in one call: what a killed replica can leave uncounted."""


class Budget:
    """One replica's part of the budget. `limit` 0: unlimited; it may be set anew at any time."""

    def __init__(self, store: Store, key: str, clock: ServerClock, replica: str, limit: int) -> None:
        self._store = store
        self._key = key
        self._clock = clock
        self._replica = replica
        self.limit = limit
        self._permits = 0
        self._taken = 0  # by pages in flight
        self._used_here = 0  # since the last refresh
        self._used_by_all = 0

    def __repr__(self) -> str:
        return f"<Budget used={self._used_by_all}/{self.limit or 'unlimited'} permits={self._permits}>"

    @property
    def is_spent(self) -> bool:
        """Whether the crawl has fetched all that it may."""
        return 0 < self.limit <= self._used_by_all + self._used_here

    def take(self) -> bool:
        """Take a permit for one page, if there is one."""
        if self.limit and self._permits <= self._taken:
            return False
        self._taken += 1
        return True

    def used(self) -> None:
        """The page of a taken permit was fetched."""
        self._taken -= 1
        self._permits -= 1
        self._used_here += 1

    def give_back(self) -> None:
        """A taken permit brought no page."""
        self._taken -= 1

    async def refresh(self, wanted: int) -> None:
        """Report what was used, and ask for `wanted` permits in hand. Raises RedisAway, then nothing is forgotten."""
        if self.limit or self._used_here >= REPORTED_AT_ONCE:
            await self._spend(wanted)

    async def leave(self) -> None:
        """Report what was used, and hold no permit any more. Raises RedisAway."""
        await self._spend(0)

    async def _spend(self, wanted: int) -> None:
        used = self._used_here
        call = run(
            SPEND,
            [self._key],
            self._replica,
            used,
            max(wanted, self._taken),
            self.limit,
            self._clock.now_ms(),
            PERMIT_TTL_MS,
        )
        (reply,) = await self._store.send([call])
        # Pages may have been fetched while the call was under way; they came out of the permits held before it.
        self._used_here -= used
        self._permits = int(reply[1]) - self._used_here
        self._used_by_all = int(reply[2])
