"""What a replica that stops does about its last writes, which a server may still lose.

While it runs, a replica repeats the writes that a restarted server lacks. Nobody repeats those of a replica that has ended,
so it waits until the servers have synced them. If that cannot be known, its files stay open: the next start removes the
pages that are not settled.
"""

from __future__ import annotations

import asyncio
import contextlib

from frontier.clock import Clock
from frontier.errors import RedisAway, RedisMisused
from frontier.queue import Frontier

REDIS_STEP_S = 2.0
"""How long one step of leaving the cluster, or a look for restarts of servers, may take, in seconds. If Redis is
unavailable, the other replicas notice the missing claims instead."""

WAIT_S = 5.0
"""How long to wait for servers to sync the last writes. If a server is restarted meanwhile, they are repeated, and the wait
begins anew."""

POLL_S = 0.1


async def wait_until_safe(frontier: Frontier, clock: Clock) -> bool:
    """Return whether the servers have synced the last writes of `frontier` within `WAIT_S` seconds."""
    until = clock.monotonic() + WAIT_S
    while not frontier.are_writes_safe:
        if clock.monotonic() >= until:
            return False
        await clock.sleep(POLL_S)
    return True


async def look_for_new_runs(frontier: Frontier, clock: Clock) -> bool:
    """Look for restarts of servers. Return whether all that were written to have answered within `REDIS_STEP_S` seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(REDIS_STEP_S):
            while True:
                with contextlib.suppress(RedisAway, RedisMisused):  # it may be starting
                    await frontier.look_for_new_runs()
                    return True
                await clock.sleep(POLL_S)
    return False
