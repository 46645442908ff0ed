"""What a replica does with its permits."""

from __future__ import annotations

from collections.abc import Callable

from frontier.budget import SURE_MS, Budget
from frontier.keys import CrawlKeys
from frontier.scripts import command
from frontier.store import Store
from tests.frontier.helpers import ManualTime

LEASE_MS = 4_000
AT_ONCE = 8

MakeBudget = Callable[..., Budget]


async def settle(store: Store, keys: CrawlKeys, pages: int) -> None:
    """Count `pages` as settled as done in the counters of a shard."""
    await store.send([command("HINCRBY", keys.shards[pages % 2].stats, "done", pages)])


async def fetch(one: Budget, store: Store, keys: CrawlKeys, most: int = 1_000) -> int:
    """Fetch and settle a page for each permit of `one`, at most `most`. Returns the number of pages."""
    pages = 0
    while pages < most and one.take():
        pages += 1
    await settle(store, keys, pages)
    one.used(pages)
    return pages


async def recount(one: Budget, time: ManualTime) -> None:
    """Recount when the counters have shown the same for long enough."""
    await one.recount()
    for _ in range(SURE_MS // 500):
        await keep_asking(one, time, 500)
        await one.recount()


async def keep_asking(one: Budget, time: ManualTime, ms: int) -> None:
    """Advance the clock by `ms` while `one` refreshes like a replica without permits."""
    for _ in range(ms // 500):
        time.ms += 500
        await one.refresh(AT_ONCE, 1)
