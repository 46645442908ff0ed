"""The budget of a crawl: how many pages all replicas together may fetch.

A page is a URL that is settled as done. A replica takes a permit before it requests one, from a store of its own that
`refresh` fills up, and the permit is used when the page is settled. Used and held permits of all replicas together never
pass the limit, so a crawl of 100 pages fetches 100, with any number of replicas. Rules for editors:

**When in doubt, a permit counts as used.** Of the permits of a replica that died, nobody knows how many pages they
brought; nor of a page whose settlement found the lease lost. So fewer pages may have been fetched than were counted, but
never more.

**The counters decide in the end.** Once as many permits are used as the limit allows, and nobody holds one, no page is
about to be settled, and the counters of the shards (`Counters.done`) tell how many there are. If there are fewer than
the limit, `recount` corrects the count and the crawl goes on. They are also read when a replica begins to count, so that a
limit which is set in mid-crawl is one on the whole crawl; without a limit nothing is counted here.

**Only its holder takes a permit away.** A replica trims its own store before it asks, and the script never leaves it
less than it keeps. So a lost, late or doubled call changes nothing that another replica relies on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.errors import RedisMisused
from frontier.keys import CrawlKeys
from frontier.scripts import RECOUNT, RESERVE_BUDGET
from frontier.store import Store, run

PERIOD_S = 1.0
"""How often a replica reports, at least, while permits are plentiful."""

SHORT_PERIOD_S = 0.2
"""The same while they are not: others may return some at any time."""

AFTER_LEASE_MS = 2_000
"""Permits lapse so long after the leases of the same replica: until then another one may find its pages settled."""

GAP_MS, GRACE_MS = 5_000, 10_000
"""A replica that was not answered for `GAP_MS` lets nobody's permits lapse for `GRACE_MS`: if Redis was away, all were
silent, and they come back within this time (`crawler.redis_retry`)."""


def permits_wanted(in_use: int, drawn: int, elapsed_s: float, at_once: int) -> int:
    """How many permits a replica should hold, those for pages under way (`in_use`) included.

    There should be one for each of the `at_once` requests that can begin at any moment, and for two periods at the rate
    of the last `elapsed_s`, in which `drawn` were asked for. A replica that asked for none wants no more than it uses.
    """
    if not drawn:
        return in_use
    return in_use + at_once + math.ceil(2 * PERIOD_S * drawn / max(elapsed_s, SHORT_PERIOD_S))


class _Answer(NamedTuple):
    """What Redis said last. `used` and `held`: by all replicas; `share`: the most that this replica could hold now."""

    used: int
    held: int
    share: int
    recounts: int


class Budget:
    """One replica's part of the budget of the crawl that `keys` name. `limit` 0: unlimited; it may be set anew at any time,
    and so may `lease_ms`, the time for which domains are leased."""

    def __init__(
        self, store: Store, keys: CrawlKeys, clock: ServerClock, replica: str, limit: int, lease_ms: int = 30_000
    ) -> None:
        self._store = store
        self._keys = (keys.budget, keys.takers)
        self._counters = Counters(store, keys)
        self._clock = clock
        self._replica = replica
        self.limit = limit
        self.lease_ms = lease_ms
        self.is_short = False  # we got less than we wanted
        self._permits = 0  # in hand, those of pages under way included
        self._taken = 0  # by pages under way
        self._pages = 0  # since the start
        self._reported = 0  # of them
        self._drawn = 0  # permits asked for since the last answer
        self._ahead = 0  # permits that we wanted with the last answer, besides those in use then
        self._calls = 0
        self._is_counting = False  # Redis knows of us
        self._answer = _Answer(0, 0, 0, 0)
        self._done = 0  # pages in the crawl's counters when they were read last
        self._answered_ms = 0
        self._lapses_ms = 0
        self._sure_from_ms = 0  # from when on permits of others may lapse by our word

    def apply(self, limit: int, lease_ms: int) -> None:
        """Go by these from now on."""
        self.limit, self.lease_ms = limit, lease_ms

    def __repr__(self) -> str:
        return f"<Budget used={self._answer.used}/{self.limit or 'unlimited'} permits={self._permits}>"

    @property
    def is_exhausted(self) -> bool:
        """Whether the crawl has fetched all that it may, by its counters."""
        return 0 < self.limit <= self._done

    @property
    def is_used_up(self) -> bool:
        """Whether there seems to be no page left, and none is under way: time to `recount`."""
        return 0 < self.limit <= self._answer.used and self._answer.held == 0

    @property
    def free(self) -> int:
        """Permits that can be taken now."""
        if not self.limit:
            return 1 << 30
        left = self._permits - self._taken
        return left if left > 0 and self._clock.now_ms() < self._lapses_ms else 0

    @property
    def is_low(self) -> bool:
        """Whether a refresh now would bring more, or would tell others that all that we held is used."""
        if not self.limit:
            return False
        if self.is_short:
            return self._permits == 0 and self._pages > self._reported
        return self._drawn > 0 and 2 * (self._permits - self._taken) <= self._ahead

    def take(self) -> bool:
        """Take a permit for one page, if there is one."""
        self._drawn += 1
        if self.limit and not self.free:
            return False
        self._taken += 1
        return True

    def used(self, pages: int) -> None:
        """So many pages with a permit are settled, as far as we know."""
        self._taken -= pages
        self._permits -= pages
        self._pages += pages

    def give_back(self) -> None:
        """A taken permit brought no page."""
        self._taken -= 1

    async def refresh(self, at_once: int, waiting: int) -> None:
        """Report what was used, and fill up. `at_once`: requests in flight at most; `waiting`: visits that found no permit.
        Raises RedisAway, then nothing is forgotten."""
        if not self.limit:
            if self._is_counting:
                await self.leave()
            return
        drawn, at_least = max(self._drawn, waiting), 0
        if not self._is_counting:
            drawn = max(drawn, 1)  # it is about to begin
            # In this order: what is settled while the counters are read is reported in any case.
            self._reported = self._pages
            at_least = self._done = await self._counters.done()
        elapsed_s = (self._clock.now_ms() - self._answered_ms) / 1000
        in_use = self._taken
        wanted = permits_wanted(in_use, drawn, elapsed_s, at_once)
        self._ahead = wanted - in_use
        await self._reserve(wanted, at_least)
        self._is_counting = True
        self._drawn = max(0, self._drawn - drawn)

    async def leave(self) -> None:
        """Report what was used, and hold no permit any more. Pages that are still under way count as used, since they
        may get settled. Raises RedisAway."""
        if self._is_counting:
            self._permits = 0
            await self._reserve(-1, 0)
            self._is_counting = False

    async def recount(self) -> None:
        """Have the counters decide whether there is any page left. Raises RedisAway."""
        answer = self._answer
        self._done = await self._counters.done()
        if not self.is_exhausted:
            call = run(RECOUNT, self._keys[:1], answer.used, answer.recounts, self._done)
            await self._store.send([call])

    async def _reserve(self, wanted: int, at_least: int) -> None:
        now_ms = self._clock.now_ms()
        if now_ms > self._answered_ms + GAP_MS:
            self._sure_from_ms = now_ms + GRACE_MS
        # Nothing below this is given to others, so workers may go on with it while we wait for the answer.
        keep = self._permits = max(self._taken, min(self._permits, wanted, self._answer.share))
        pages, lapses_ms = self._pages, now_ms + self.lease_ms + AFTER_LEASE_MS
        if wanted < 0:
            keep, pages = 0, pages + self._taken
        self._calls += 1
        call = run(
            RESERVE_BUDGET,
            self._keys,
            self._replica,
            self._calls,
            pages,
            self._reported,
            keep,
            wanted,
            self.limit,
            at_least,
            lapses_ms,
            now_ms if now_ms >= self._sure_from_ms else 0,
        )
        match (await self._store.send([call]))[0]:
            case [b"reserved", permits, *numbers]:
                self._answer = _Answer(*map(int, numbers))
            case reply:
                raise RedisMisused(f"spend answered {reply!r}")
        self._answered_ms, self._lapses_ms, self._reported = now_ms, lapses_ms, pages
        self.is_short = wanted >= 0 and self._answer.share < max(1, wanted)
        # Pages may have been settled while the call was under way; their permits were among those kept.
        self._permits = int(permits) - (self._pages - pages)
