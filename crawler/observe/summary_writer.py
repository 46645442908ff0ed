"""Writes the crawl's summary periodically while this replica has index 1 in the view."""

from __future__ import annotations

from collections.abc import Callable

from crawler.observe import summary
from crawler.observe.summary import Summary
from crawler.redis_retry import RedisRetry
from frontier.clock import Clock, ServerClock
from frontier.keys import CrawlKeys
from frontier.peers import View
from frontier.store import RedisStore

SHORTEST_S, LONGEST_S, SECONDS_A_SHARD = 1.0, 120.0, 0.01
"""The period of the summary: `SECONDS_A_SHARD` for each shard, within these limits. Surveying a shard takes about 50 us of
CPU time, so this uses half a percent of a core, and three percent with the most shards."""

KEPT_PERIODS = 3
"""A summary expires after this many periods."""


def period_s(shards: int) -> float:
    """Return the seconds between two summaries of a crawl with `shards` shards."""
    return min(max(SHORTEST_S, shards * SECONDS_A_SHARD), LONGEST_S)


class SummaryWriter:
    """Writes the summary. `latest`: the last one if this replica wrote it, otherwise None."""

    def __init__(
        self,
        store: RedisStore,
        keys: CrawlKeys,
        clocks: tuple[Clock, ServerClock],
        redis_retry: RedisRetry,
        view: Callable[[], View | None],
    ) -> None:
        self._store = store
        self._keys = keys
        self._clock, self._server_clock = clocks
        self._redis_retry = redis_retry
        self._view = view
        self.latest: Summary | None = None

    async def run(self) -> None:
        """Write summaries until cancelled."""
        period = period_s(len(self._keys.shards))
        while True:
            view = self._view()
            if view is not None and view.index == 1:
                live = frozenset(member.replica for member in view.roster)
                self.latest = await self._redis_retry.call(lambda view=view, live=live: self._make(view.me, live))  # type: ignore[misc]
            else:
                self.latest = None
            await self._clock.sleep(period)

    async def _make(self, me: str, live: frozenset[str]) -> Summary:
        before = self.latest or await summary.load(self._store, self._keys)
        taken = await summary.take(self._store, self._keys, self._server_clock.now_ms(), me, live)
        made = summary.followed(taken, before)
        await summary.save(self._store, self._keys, made, KEPT_PERIODS * period_s(len(self._keys.shards)))
        return made
