"""A real server that is killed and loses the end of its log, and replicas of a crawl with connections of their own, as
processes would have."""

from __future__ import annotations

import contextlib
from pathlib import Path

from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import Lease, LeasedUrl
from frontier.shards import identify_shards
from frontier.store import RedisStore, connect
from tests.frontier.helpers import ManualTime
from tests.valkey import ValkeyProcess

GRACE_MS = 1_000
KEY = b"key"


class Server:
    """A server, and replicas of a crawl on it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "appendonlydir"
        self.process = ValkeyProcess(folder, persistent=True)
        self.time = ManualTime()
        self._stores: list[RedisStore] = []

    async def replica(self) -> Frontier:
        store = await connect(self.process.url)
        self._stores.append(store)
        clock = ServerClock(self.time, self.time.read_ms)
        await clock.refresh()
        keys = CrawlKeys("news", 2, KEY.hex())
        await identify_shards(store, keys, range(2))
        return Frontier(store, keys, clock, FrontierSettings(), KEY)

    def log_size(self) -> int:
        (log,) = self._log.glob("*.incr.aof")
        return log.stat().st_size

    def restart(self, log_size: int | None = None) -> None:
        """Kill the server and start it again, without what it logged after `log_size` bytes."""
        self.process.kill()
        if log_size is not None:
            (log,) = self._log.glob("*.incr.aof")
            with log.open("r+b") as file:
                file.truncate(log_size)
        self.process.start()

    async def close(self) -> None:
        for store in self._stores:
            await store.close()


async def notice(*replicas: Frontier) -> None:
    """Each replica learns of the restart, as its first calls fail."""
    for replica in replicas:
        run = replica._store.run_of("")
        while replica._store.run_of("") == run:
            with contextlib.suppress(RedisAway):
                await replica._store.time_ms()


async def counts(replica: Frontier) -> tuple[int, int, int]:
    found = await Counters(replica._store, replica.keys).counts()
    return found.accepted, found.done, found.open


def home(frontier: Frontier) -> int:
    return frontier.shard_of("a.test")


def urls(lease: Lease) -> list[LeasedUrl]:
    return [LeasedUrl(lease.shard, lease.domain, lease.token, entry) for entry in lease.entries]


async def repeat(frontier: Frontier) -> list[LeasedUrl]:
    """Repeat the last writes, as a replica does that sees a new run."""
    runs = frontier.replaced_runs()
    await frontier.repeat_pushes(runs)
    return await frontier.repeat_settlements(runs)
