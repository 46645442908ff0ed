"""Values that the frontier's tests share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence

from frontier.clock import ServerClock
from frontier.crawls import Crawl, open_crawl
from frontier.entries import Entry
from frontier.errors import NoSuchCrawl, RedisAway
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import Reshard, Tell, open_with_new_shards
from frontier.scripts import Argument, Call, Reply, command
from frontier.settle import Lease, SettledUrl, Settlement
from frontier.shards import identify_shards
from frontier.store import Store


class ManualTime:
    """A clock that advances only when told to. Used as `Clock` and as the server's clock."""

    def __init__(self, ms: int = 1_000_000_000) -> None:
        self.ms = ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def now_ms(self) -> int:
        return self.ms

    async def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)

    async def read_ms(self) -> float:
        return self.ms


class CountingStore:
    """Counts the calls by script or command."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.calls.update(call.script.name if call.script else str(call.arguments[0]) for call in calls)
        return await self._store.send(calls)

    async def send_each(self, calls: Sequence[Call]) -> list[Reply | RedisAway]:
        self.calls.update(call.script.name if call.script else str(call.arguments[0]) for call in calls)
        return await self._store.send_each(calls)

    def node_of(self, key: str) -> str:
        return self._store.node_of(key)

    def is_away(self, node: str) -> bool:
        return self._store.is_away(node)

    def run_of(self, key: str) -> str:
        return self._store.run_of(key)

    def runs(self) -> Hashable:
        return self._store.runs()

    def keep_time_by(self, key: str) -> None:
        self._store.keep_time_by(key)

    async def time_ms(self) -> float:
        return await self._store.time_ms()

    async def close(self) -> None: ...


async def ask(store: Store, *words: Argument) -> Reply:
    """The reply to one command."""
    (reply,) = await store.send([command(*words)])
    return reply


async def make_frontier(
    store: Store, crawl: str, time: ManualTime, settings: FrontierSettings | None = None, shards: int = 1
) -> Frontier:
    """The frontier of `crawl`, which need not exist."""
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    try:
        existing = await open_crawl(store, crawl)
    except NoSuchCrawl:
        keys, fingerprint_key = CrawlKeys(crawl, shards, b"key".hex()), b"key"
        await identify_shards(store, keys, range(shards))
    else:
        keys, fingerprint_key = existing.keys, existing.fingerprint_key
    return Frontier(store, keys, clock, settings or FrontierSettings(), fingerprint_key)


def entry(url: str = "https://a.test/1", domain: str = "a.test", **more: object) -> Entry:
    return Entry(url, domain, **more)  # type: ignore[arg-type]


async def lease_one(frontier: Frontier, epoch: int = 1, replica: str = "r1", shard: int = 0) -> Lease:
    leased, fenced = await frontier.lease([shard], epoch, replica, 1)
    assert not fenced
    return leased[0].leases[0]


def settle_all(lease: Lease, next_ms: int = 0, outcome: str = "done") -> Settlement:
    return Settlement(lease, next_ms, urls=[SettledUrl(entry, outcome, "x") for entry in lease.entries])


async def reshard_crawl(work: Reshard, crawl: Crawl, tell: Tell) -> None:
    """Carry out `work` on `crawl` to its end, as `crawler reshard` does."""
    await work.clean(await open_with_new_shards(work, crawl, tell), tell)


def moved(before: Sequence[str], after: Sequence[str]) -> int:
    """How many shards have a different owner in `after` than in `before`."""
    return sum(old != new for old, new in zip(before, after, strict=True))


ODD = b"x\xff\0 y"


def writes_over(key: str, kind: str, fields: list[bytes]) -> Iterator[list[Call]]:
    """Calls that give `key` another type, and values that nobody understands."""
    delete = command("DEL", key)
    yield [delete, command("RPUSH", key, "x")]
    match kind:
        case "hash":
            yield [command("HSET", key, field, ODD) for field in (*fields, ODD)]
        case "zset":
            yield [command("ZADD", key, score, member) for score, member in (("inf", ODD), (1, "x"), ("-inf", "a\n\n"))]
        case "string":
            yield [command("SET", key, ODD)]
