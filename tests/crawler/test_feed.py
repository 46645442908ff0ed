"""The feeder leases what is due in its shards, and only looks at those where nothing is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from crawler.commit import Committer
from crawler.events import Events
from crawler.feed import Feeder, FeedSettings
from crawler.patience import Patience
from crawler.recent import RecentUrls
from crawler.schedule import Schedule
from crawler.sinks import Archive
from crawler.visit import Visit
from frontier.books import Books
from frontier.clock import ServerClock, SystemClock
from frontier.keys import CrawlKeys
from frontier.peers import View
from frontier.queue import Frontier, FrontierSettings
from frontier.store import Call, RedisStore, Reply
from tests.frontier.helpers import CountingStore, entry
from tests.sinks.values import settings


class LookedAtStore(CountingStore):
    """`looked` is set after ten looks at the shards."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.looked = asyncio.Event()

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        if self.calls["EXISTS"] >= 10:
            self.looked.set()
        return replies


async def test_an_empty_shard_is_leased_from_once_and_then_looked_at_until_others_push_there(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a replica with one shard, in which there is nothing,
    counting, clock, events = LookedAtStore(store), SystemClock(), Events()
    server_clock = ServerClock(clock, store.time_ms)
    await server_clock.refresh()
    frontier = Frontier(counting, CrawlKeys(crawl_name, 1), server_clock, FrontierSettings(), b"key")
    patience = Patience(clock, events, random.Random(1))
    committer = Committer(frontier, Archive(settings(tmp_path)), RecentUrls(10), patience, events, clock)
    schedule: Schedule[Visit] = Schedule(clock)
    feeder = Feeder(
        frontier, schedule, committer, patience, events, (clock, server_clock), "me", FeedSettings(poll_s=0.01)
    )
    feeder.adopt(View(3, (), "me", owners=("me",)))
    feeding = asyncio.create_task(feeder.run())
    taking = asyncio.create_task(schedule.take())
    # When it has been looked at often,
    await counting.looked.wait()
    # Then it was leased from once, so that all know whose it is;
    assert counting.calls["lease"] == 1
    (owner,) = await Books(store, frontier.keys).owners()
    assert (owner.replica, owner.epoch) == ("me", 3)
    # and what somebody else pushes there is found.
    await Frontier(store, frontier.keys, server_clock, FrontierSettings(), b"key").push([entry()])
    assert (await taking).domain == "a.test"
    feeding.cancel()
