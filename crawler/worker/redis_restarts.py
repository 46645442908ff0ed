"""Repeats this replica's last writes after a restart of the server, which may have lost them.

A shard grants no leases for a second after a restart (`frontier/lua/lost_writes.lua`), so that all replicas repeat their
writes before URLs that were settled are leased again. If this replica is late, because it was suspended or cut off,
another one may have leased them. Then their pages are removed from the archive here, so that each page is kept once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from crawler.events import WritesRepeated
from crawler.scope.scope import RecentUrls
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.errors import RedisAway, RedisMisused, ReplicasMissing
from frontier.queue import Frontier
from frontier.settle import LeasedUrl

WATCH_S = 0.25
"""Seconds between two looks for a new run. It is a fraction of the time in which a shard grants no leases."""

RENEWED_AT_ONCE = 64
"""Leases renewed in one round trip."""


class TakesBack(Protocol):
    """Where pages are removed from."""

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None: ...


Renew = Callable[[Sequence[LeasedDomain]], Awaitable[None]]


class WriteRepeater:
    """Repeats the writes of `frontier`, and forgets links that count as pushed in `recent`."""

    def __init__(
        self, runtime: Runtime, frontier: Frontier, sink: TakesBack, recent: RecentUrls, held: HeldLeases
    ) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._sink = sink
        self._recent = recent
        self._held = held
        self._forgotten: dict[int, str] = {}  # shards and their new runs for which `recent` was cleared

    async def watch(self, notify: Callable[[], None]) -> None:
        """Call `notify` while writes are to be repeated, until cancelled."""
        while True:
            await self._runtime.clock.sleep(WATCH_S)
            with contextlib.suppress(RedisAway, RedisMisused):  # whoever needs the node reports it
                await self._frontier.look_for_new_runs(if_lately=not len(self._held))
            if self._frontier.replaced_runs():
                notify()

    async def repeat(self, renew: Renew) -> None:
        """Repeat the last writes to shards with a new run, and `renew` the leases in them. That restores their domains'
        delays, and shows which leases are lost. Shards whose nodes are away are left to the next call."""
        retry = self._runtime.retry
        while runs := self._frontier.replaced_runs():
            if not runs.items() <= self._forgotten.items():
                self._recent.clear()  # once for each run: the shards of a node that is away may be left for hours
            self._forgotten = runs
            parts = retry.split(list(runs), lambda shard: shard)
            ready = await self._push(parts)
            pushed = {node: {shard: runs[shard] for shard in shards} for node, shards in ready.items()}
            answers = await retry.each(pushed, self._frontier.repeat_settlements)
            done = {node: answer for node, answer in answers.items() if not isinstance(answer, RedisAway)}
            if unsettled := [url for answer in done.values() for url in answer]:
                await self._sink.take_back(unsettled)
            if repeated := sum(len(pushed[node]) for node in done):
                self._runtime.events.emit(WritesRepeated(repeated, len(unsettled)))
            domains = [leased for leased in self._held if leased.lease.shard in runs]
            for at in range(0, len(domains), RENEWED_AT_ONCE):
                await renew(domains[at : at + RENEWED_AT_ONCE])
            if repeated < len(runs):
                return

    async def _push(self, parts: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Repeat the pushes to the shards in `parts`, by node. Links whose nodes are away go to the outboxes of the shards
        whose settlements are to be repeated, because they may be links of their pages. Returns the parts that may be
        settled now.

        So do links whose nodes have them but lack replicas, except for shards of the same node: a replica receives all
        writes of its node in their order, so it never has the settlement of a page without the page's links. A master
        that has just taken over may lack replicas for hours, in which its shards are to be crawled nevertheless. Of
        nodes that are reached in different calls, links to the earlier one are not in outboxes."""
        retry, frontier = self._runtime.retry, self._frontier
        answers = await retry.each(parts, frontier.repeat_pushes)
        lacking = {node: parts[node] for node, answer in answers.items() if isinstance(answer, ReplicasMissing)}
        taken = await retry.each(lacking, lambda shards: frontier.repeat_pushes(shards, without_acks=True))
        unsafe = {shard for node in parts if isinstance(answers[node], RedisAway) for shard in parts[node]}
        reached = {node: shards for node, shards in parts.items() if not isinstance((answers | taken)[node], RedisAway)}
        if not unsafe:
            return reached

        async def keep(shards: list[int]) -> set[int]:
            links = frontier.recent_links(unsafe.difference(shards))
            return (
                await frontier.keep_links(dict.fromkeys(frontier.recently_settled(shards), links)) if links else set()
            )

        full = await retry.each(reached, keep)
        return {
            node: [shard for shard in reached[node] if shard not in answer]
            for node, answer in full.items()
            if not isinstance(answer, RedisAway)
        }
