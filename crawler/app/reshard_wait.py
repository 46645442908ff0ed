"""What a replica does while its crawl is given another number of shards: it ends its leases, waits, and continues as a new
replica in the same process.

`crawler reshard` announces a reshard and then waits some seconds for the requests in flight. A replica that does not notice
in time, because it was suspended, finds that all shards refuse it. Its last pages may not be settled then. Their files stay
open, and the new replica asks which of them are settled, as after a crash (`crawler.sinks.recovery`).

The new replica claims its place in the roster from the beginning, so that it owns shards as soon as it may crawl. The
status pages of the old one stay until the new one starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Collection

import msgspec

from crawler.app.replica import Replica
from crawler.logs import log
from frontier.crawls import Crawl, open_crawl, verify_crawl
from frontier.errors import CrawlLost, CrawlResharded, NoSuchCrawl, RedisAway, RedisMisused, Resharding, ShardLost
from frontier.peers import PeerLoop, PeerSettings
from frontier.shards import lost_shards

GRACE_S = 5.0
"""How long requests in flight may take, in seconds: less than `frontier.reshard.LEASES_END_S`, by the two seconds in which
a replica notices the reshard, and one in which it settles."""

LOOK_S = 0.5
"""Seconds between two looks whether the reshard has ended."""

TELL_S = 10.0
"""Seconds between two lines of the log."""


async def start(replica: Replica, until_empty: bool, stopping: asyncio.Event) -> Replica | None:
    """Start `replica`, and return it. If the crawl has got, or is being given, other shards since `replica` opened it, this
    is the replica that continues, once it can; None if `stopping` was set before that. Raises what `Replica.start` does."""
    while True:
        try:
            await replica.start(until_empty)
        except CrawlResharded:
            if (crawl := await _resharded(replica, stopping)) is None:
                return None
            replica = _continued(replica, replica.next_id(), crawl)
        else:
            return replica


async def was_resharded(replica: Replica, stopping: asyncio.Event) -> bool:
    """Whether the engine of `replica` has ended because its crawl has, or is being given, another number of shards. False
    if `stopping` is set before this is known."""
    failure = replica.engine.tasks.failure
    if failure is None:
        return replica.engine.has_other_shards
    while isinstance(failure, ShardLost) and not stopping.is_set():
        try:
            return await _were_frozen(replica, failure.shards)
        except (RedisAway, RedisMisused):
            await _pause(stopping)
    return isinstance(failure, (CrawlResharded, Resharding))


async def was_frozen(replica: Replica) -> bool:
    """Whether the engine of `replica`, which has stopped, has failed because of a reshard."""
    failure = replica.engine.tasks.failure
    if isinstance(failure, ShardLost):
        try:
            return await _were_frozen(replica, failure.shards)
        except (RedisAway, RedisMisused):
            return False
    return isinstance(failure, (CrawlResharded, Resharding))


async def _were_frozen(replica: Replica, shards: Collection[int]) -> bool:
    """Whether `shards` refused `replica` because of a reshard, which may be undone by now, and are not lost. Raises
    RedisAway and RedisMisused."""
    try:
        await verify_crawl(replica.store, replica.crawl)
    except CrawlLost as error:
        return isinstance(error, CrawlResharded)
    return not await lost_shards(replica.store, replica.crawl.keys, sorted(shards))


async def successor(replica: Replica, grace_s: float, stopping: asyncio.Event) -> Replica | None:
    """Stop the engine of `replica`, wait until the reshard has ended, and return the replica that continues, which has not
    started yet. None if `stopping` was set before that, or if the engine has failed. Then `replica` has stopped."""
    name, local, engine = replica.next_id(), replica.local, replica.engine
    settings = PeerSettings(local.interval, local.capacity, replica.status.address)
    place = PeerLoop(replica.store, replica.crawl.keys.peers, replica.clock, settings, name, engine.runtime.rng)
    await engine.tasks.cancel(engine.following)
    place.continue_time(engine.peers.time)
    claiming = asyncio.create_task(_claim(place))
    crawl = None
    try:
        await replica.stop_crawling(min(grace_s, GRACE_S))
        if isinstance(engine.tasks.failure, (CrawlLost, Resharding, type(None))):
            crawl = await _resharded(replica, stopping)
    finally:
        claiming.cancel()
        await asyncio.wait([claiming])
        if crawl is None:
            await engine.leave(place.leave)
        await replica.status.stop()
    return None if crawl is None else _continued(replica, name, crawl)


def _continued(replica: Replica, name: str, crawl: Crawl) -> Replica:
    # With the revision that it has applied: a change that it has missed, or that waits for a restart, is seen again.
    return replica.successor(name, msgspec.structs.replace(crawl, revision=replica.engine.follower.revision))


async def _claim(place: PeerLoop) -> None:
    async for _ in place.views():
        pass


async def _resharded(replica: Replica, stopping: asyncio.Event) -> Crawl | None:
    """The crawl with its new shards, once it can be opened. None if `stopping` was set. Raises CrawlLost if it is gone."""
    told_at = float("-inf")
    while not stopping.is_set():
        try:
            crawl = await open_crawl(replica.store, replica.crawl.name)
        except Resharding as error:
            now = replica.clock.monotonic()
            if now >= told_at + TELL_S:
                told_at = now
                log(logging.INFO, "resharding", replica=replica.id, message=f"the crawl is {error.progress}")
        except (RedisAway, RedisMisused):
            pass  # as long as it takes, as for every other call
        except NoSuchCrawl as error:
            raise CrawlLost(str(error)) from error
        else:
            log(logging.INFO, "resharded", replica=replica.id, shards=crawl.shards)
            return crawl
        await _pause(stopping)
    return None


async def _pause(stopping: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        waiting: Awaitable[bool] = stopping.wait()
        await asyncio.wait_for(waiting, LOOK_S)
