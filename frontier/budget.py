"""The budget of a crawl: how many pages all replicas together may fetch.

A page is a URL that is settled as done. Before a replica requests a page, it takes a permit from its local supply, which
`refresh` fills up. The permit is used when the page is settled. The used and held permits of all replicas together never
exceed the limit, so a crawl with a limit of 100 pages fetches 100 with any number of replicas. Rules for editors:

**When in doubt, a permit counts as used.** It is unknown how many pages a replica fetched with its permits before it
died, or whether a page was fetched whose lease ended before it was settled. So fewer pages may have been fetched than
were counted, but never more, unless Redis loses its last writes (docs/explanation/faults.md).

**The shard counters are authoritative.** Once all permits are used and no replica holds one, no page is about to be
settled, so `Counters.done` is the exact number of pages. If it is below the limit, `recount` corrects the count and the
crawl continues.

**Without a limit, pages are not counted,** and each replica reports only that it fetches without permits. Once a limit is
set, replicas learn of it at different times. So nobody gets a permit until all of them need permits, also for their pages
in progress, and the counters have been read. Of two limits, the one with the newer settings applies to all. A replica that
has not read them yet learns the limit from the reply to its report, at the latest.

**A replica fetches nothing before its first report.** It may have read its settings before a limit was set. The same
holds if it could not report for so long that others have stopped waiting for it to learn of a limit. Only while the node of
the budget is away does it continue without a limit.

**No page is settled after its permit has expired.** Otherwise it might be settled after a recount. So a lease is not used
for longer than the permits are valid (`valid_s`), also if it is renewed while the reports of this replica get lost.

**A permit is taken away only by its holder.** A replica reduces its own supply before it calls Redis, and the script
never leaves it fewer than it keeps. So a lost, late or repeated call changes nothing that another replica relies on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.errors import RedisMisused
from frontier.keys import CrawlKeys
from frontier.peers import period_s
from frontier.scripts import RECOUNT, RESERVE_BUDGET, script_call
from frontier.store import Store

PERIOD_S = 1.0
"""Maximum time between two reports of a replica while enough permits are left."""

SHORT_PERIOD_S = 0.2
"""The same while permits are scarce. Other replicas may return some at any time."""

FREE_PERIOD_S = 4.0
"""The same while there is no limit. A report then only says that the replica still fetches without permits."""

AFTER_LEASE_MS = 2_000
"""Milliseconds from the end of a replica's leases until its permits expire. Its pages may still be settled until then."""

TAKEOVER_INTERVALS = 3
"""Within so many intervals of the peer loop, others own the shards of a replica that died."""

PERIODS_A_LAPSE = 8
"""A replica reports at least so often in the time after which its permits expire, so that it notices before they do that
the node hangs."""

GAP_MS, GRACE_MS = 5_000, 10_000
"""A replica that got no reply for `GAP_MS`, or two of its periods, does not expire other replicas' permits for `GRACE_MS`.
If Redis was away, no replica could report, and all of them reconnect within this time (`crawler.redis_retry`)."""

SURE_MS = 2_000
"""How long the counters must show too few pages before they correct the count. After a restart, the server lacks its last
writes until the replicas have repeated them, for which a shard grants no leases for a second (`lua/lost_writes.lua`)."""

STOCK = 2
"""Permits for each request that can start at any time, which a replica holds also while it requests none. All its requests
may start at once, when its first domains are leased, and as many again before more permits arrive."""

PLENTY = 12
"""A replica's share of what is left, for each of these requests, above which it keeps its stock. Then nobody lacks it."""


def permits_wanted(in_use: int, drawn: int, elapsed_s: float, at_once: int) -> int:
    """How many permits a replica should hold, including those in use by pages in progress (`in_use`).

    It should have one for each of the `at_once` requests that can start at any time, and enough for two periods at the
    rate of the last `elapsed_s` seconds, in which `drawn` permits were requested. If none were requested, it needs only
    those in use.
    """
    if not drawn:
        return in_use
    return in_use + at_once + math.ceil(2 * PERIOD_S * drawn / max(elapsed_s, SHORT_PERIOD_S))


def leased_ms(lease_ms: int, interval_s: float) -> int:
    """How long domains stay leased to a replica that died: until their leases have expired and others own its shards, who
    take them back. Before, a call that it sent may still settle pages."""
    return max(lease_ms, math.ceil(1000 * TAKEOVER_INTERVALS * interval_s))


class PageLimit(NamedTuple):
    """At most `pages` pages, 0 for no limit, by the settings with `revision`."""

    pages: int
    revision: int


class _Answer(NamedTuple):
    """The last reply of Redis. `used` and `held`: by all replicas; `share`: the most that this replica may hold now;
    `counted`: 1 if `used` is known; `without_permits`: how many replicas fetch without."""

    used: int
    held: int
    share: int
    counted: int
    without_permits: int
    recounts: int
    limit: int
    revision: int


class Budget:
    """One replica's part of the page budget of the crawl with `keys`. `limit`: maximum number of pages. `lease_ms`: how
    long domains stay leased to a replica that died (`leased_ms`). `apply` may change both at any time."""

    def __init__(
        self, store: Store, keys: CrawlKeys, clock: ServerClock, replica: str, limit: PageLimit, lease_ms: int = 30_000
    ) -> None:
        self._store = store
        self._keys = (keys.budget, keys.takers)
        self._counters = Counters(store, keys)
        self._clock = clock
        self._replica = replica
        self._limit = limit
        self._lease_ms = lease_ms
        self._told: PageLimit | None = None  # the limit that this replica had in its last report
        self._is_free = False  # by the last reply, this replica fetches without permits
        self.is_short = False  # the last reply gave fewer permits than requested
        self._permits = 0  # held, including those of pages in progress
        self._taken = 0  # by pages in progress
        self._pages = 0  # settled since the start
        self._reported = 0  # pages that Redis knows of
        self._drawn = 0  # permits requested by workers since the last reply
        self._period_s = PERIOD_S
        self._ahead = 0  # permits requested with the last call, besides those in use then
        self._calls = 0
        self._answer = _Answer(0, 0, 0, 0, 0, 0, 0, 0)
        self._done = 0  # pages in the crawl's counters when they were last read
        self._found = (0, 0, 0)  # used permits, recounts and pages that the last recount found
        self._found_ms = 0  # since when recounts have found this
        self._counted_ms = 0  # when the last recount had read the counters
        self._counting_ms = 0  # how long that took
        self._answered_ms = 0
        self._answered_by = ""  # the run of the server
        self._lapses_ms = 0
        self._sure_from_ms = 0  # from then on, this replica may expire the permits of others

    def apply(self, limit: PageLimit, lease_ms: int) -> None:
        """Use these values from now on, unless a newer limit is known already."""
        self._lease_ms = lease_ms
        if limit.revision > self._limit.revision:
            self._limit = limit

    def __repr__(self) -> str:
        return f"<Budget used={self._answer.used}/{self.limit or 'unlimited'} permits={self._permits}>"

    @property
    def limit(self) -> int:
        """The maximum number of pages, 0 for no limit."""
        return self._limit.pages

    @property
    def is_exhausted(self) -> bool:
        """Whether the crawl has reached its limit, by its counters."""
        return 0 < self.limit <= self._done

    @property
    def is_used_up(self) -> bool:
        """Whether all permits are used and none is held. Call `recount` then."""
        answer = self._answer
        return 0 < self.limit <= answer.used and answer.held == 0 and answer.counted == 1

    @property
    def available(self) -> int:
        if self._is_free:
            return 0 if self.limit or self._is_forgotten else 1 << 30
        left = self._permits - self._taken
        return left if left > 0 and self._clock.now_ms() < self._lapses_ms else 0

    @property
    def _is_forgotten(self) -> bool:
        """Whether others may have expired this replica, and Redis answers, so that it can report first."""
        if self._clock.now_ms() < self._lapses_ms:
            return False
        return not self._store.is_away(self._store.node_of(self._keys[0]))

    @property
    def valid_s(self) -> float:
        """For how many seconds from now pages may be settled with the permits held here. Later, others may count again."""
        if not self.limit or self._told is None:
            return math.inf
        return (self._lapses_ms - AFTER_LEASE_MS - self._clock.now_ms()) / 1000

    @property
    def is_low(self) -> bool:
        """Whether to call `refresh` now: to report a changed limit or used permits, or to get more."""
        if self._told != self._limit:
            return True
        if not self.limit:
            return False
        if self.is_short:
            return self._permits == 0 and self._pages > self._reported
        return self._drawn > 0 and 2 * (self._permits - self._taken) <= self._ahead

    def is_due(self, replicas: int, waiting: int) -> bool:
        """Whether one of `replicas`, with `waiting` domains without a permit, should call `refresh`, also after a
        restart."""
        is_free = self._is_free and not self.limit
        usual_s = SHORT_PERIOD_S if self.is_short or waiting else FREE_PERIOD_S if is_free else PERIOD_S
        longest_s = (self._lease_ms + AFTER_LEASE_MS) / 1000 / PERIODS_A_LAPSE
        self._period_s = min(period_s(usual_s, replicas), longest_s)
        is_old = self._clock.now_ms() >= self._answered_ms + 1000 * self._period_s
        return is_old or self.is_low or self._store.run_of(self._keys[0]) != self._answered_by

    def take(self) -> bool:
        """Take a permit for one page. False if there is none."""
        self._drawn += 1
        if not self.available:
            return False
        self._taken += 1
        return True

    def used(self, pages: int) -> None:
        """Record that `pages` with a permit were settled, as far as this replica knows."""
        self._taken -= pages
        self._permits -= pages
        self._pages += pages

    def give_back(self) -> None:
        """Return a permit that was taken for a page that was not fetched."""
        self._taken -= 1

    async def refresh(self, at_once: int, waiting: int) -> None:
        """Report used permits and fill up the supply. `at_once`: maximum number of requests in flight; `waiting`: number of
        domains that wait for a permit. Raises RedisAway; the report is then repeated with the next call."""
        drawn = max(self._drawn, waiting)
        elapsed_s = (self._clock.now_ms() - self._answered_ms) / 1000
        is_far = self._told is None or self._answer.share > PLENTY * at_once
        while True:
            wanted = permits_wanted(self._taken, drawn, elapsed_s, at_once)
            await self._report(max(wanted, self._taken + STOCK * at_once) if is_far else wanted)
            if self._told != self._limit:
                continue  # the reply has named a newer one
            if not self.limit or self._answer.counted or self._answer.without_permits or self.is_exhausted:
                break
            await self.recount()
        self._drawn = max(0, self._drawn - drawn)

    async def _report(self, wanted: int) -> None:
        limit = self._limit
        if limit.pages:
            self._ahead = wanted - self._taken
            await self._reserve(limit, self._kept(wanted), wanted)
        else:
            await self._reserve(limit, -1, 0)
        self._told = limit

    async def leave(self) -> None:
        """Report used permits, those of pages in progress included, and return the rest. Raises RedisAway."""
        if self._told is not None:
            self._permits = 0
            await self._reserve(self._limit, 0, -1)
            self._told = None

    async def recount(self) -> None:
        """Correct the number of used permits by the shard counters. It is lowered only if they have shown the same number
        of pages for `SURE_MS`: call this repeatedly. Raises RedisAway."""
        answer, started_ms = self._answer, self._clock.now_ms()
        self._done = await self._counters.done()
        found, now_ms = (answer.used, answer.recounts, self._done), self._clock.now_ms()
        # While a node hangs, what it has lost cannot be repeated.
        was_away = now_ms > self._counted_ms + 2 * self._counting_ms + 1000 * (2 * self._period_s + SHORT_PERIOD_S)
        if found != self._found or was_away:
            self._found, self._found_ms = found, now_ms
        self._counted_ms, self._counting_ms = now_ms, now_ms - started_ms
        is_sure = now_ms >= self._found_ms + SURE_MS
        if not self.is_exhausted and (is_sure or not answer.counted):
            pages = self._done if is_sure else max(self._done, answer.used)
            call = script_call(RECOUNT, self._keys[:1], answer.used, answer.recounts, pages)
            await self._store.send([call])

    def _kept(self, wanted: int) -> int:
        """Reduce the supply to what this replica may hold, and return it: workers may use it during the call."""
        if self._is_free:
            self._permits, self._is_free = self._taken, False  # pages in progress need permits from now on
        elif self._clock.now_ms() >= self._lapses_ms:
            self._permits = 0  # another replica may have counted them as used, and a recount may have freed them
        taken = max(0, min(self._taken, self._permits))
        self._permits = max(taken, min(self._permits, wanted, self._answer.share))
        return self._permits

    async def _reserve(self, limit: PageLimit, keep: int, wanted: int) -> None:
        now_ms = self._clock.now_ms()
        if now_ms > self._answered_ms + max(GAP_MS, 2000 * self._period_s):
            self._sure_from_ms = now_ms + GRACE_MS
        pages, lapses_ms = self._pages, now_ms + self._lease_ms + AFTER_LEASE_MS
        if wanted < 0:
            pages += self._taken
        self._calls += 1
        run = self._store.run_of(self._keys[0])
        call = script_call(
            RESERVE_BUDGET,
            self._keys,
            self._replica,
            self._calls,
            pages,
            self._reported if run == self._answered_by else 0,  # a new run may lack them
            keep,
            wanted,
            *limit,
            lapses_ms,
            now_ms if now_ms >= self._sure_from_ms else 0,
            run,
            now_ms,
        )
        match (await self._store.send([call]))[0]:
            case [b"reserved", permits, *numbers]:
                self._answer = answer = _Answer(*map(int, numbers))
            case reply:
                raise RedisMisused(f"reserve_budget returned {reply!r}")
        self._answered_ms, self._lapses_ms, self._reported, self._answered_by = now_ms, lapses_ms, pages, run
        is_short = answer.share < max(1, wanted) or int(permits) < wanted
        self.is_short = is_short and wanted >= 0 and limit.pages > 0
        self._is_free = int(permits) < 0
        # Pages may have been settled during the call. Their permits were among those kept.
        self._permits = int(permits) - (self._pages - pages)
        if answer.used + answer.held > answer.limit > 0:  # it was lowered, and others may use what is left
            self._permits = max(min(self._taken, self._permits), min(self._permits, answer.share))
        if answer.revision > self._limit.revision:
            self._limit = PageLimit(answer.limit, answer.revision)
