"""Waits until the servers have written to disk what they took."""

from __future__ import annotations

from collections.abc import Iterable

from frontier.clock import Clock
from frontier.errors import RedisMisused
from frontier.redis_keys import CrawlKeys
from frontier.store import Call, Store, command

DURABLE_S = 2.0
"""After so many seconds, a server has normally written to disk what it took: its log once a second by default, and up to a
second later if the disk is slow."""


async def until_synced(store: Store, clock: Clock, keys: CrawlKeys, others: Iterable[str] = ()) -> None:
    """Wait until what was sent to the servers of `keys`, and of the keys `others`, is on their disks, for `DURABLE_S` at
    most. A single server says when it is (WAITAOF, Redis 7.2), and one without a log has nothing to write. Raises
    RedisAway."""
    if len({store.node_of(key) for key in (keys.meta, *(of.base for of in keys.shards), *others)}) == 1:
        # It speaks of the writes of the same connection, so there has to be one.
        mark = command("SET", keys.shards[0].acked, "", "PX", int(1000 * DURABLE_S))
        try:
            await store.send([mark, Call(("WAITAOF", 1, 0, int(1000 * DURABLE_S)), at=keys.meta)])
        except RedisMisused as error:
            if "appendonly is disabled" in str(error):
                return
        else:
            return
    await clock.sleep(DURABLE_S)
