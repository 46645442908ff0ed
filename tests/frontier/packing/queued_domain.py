"""URLs of one domain, what Redis holds of them, and their fetching."""

from __future__ import annotations

from frontier.entries import Entry
from frontier.packing import rows_of, size_of
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, settle_all

DOMAIN = "a.test"
SETTINGS = FrontierSettings(batch=2, delay_ms=1, pack_above=16)


def urls(count: int, first: int = 0) -> list[Entry]:
    """URLs whose priority falls from one to the next, in pairs."""
    return [
        Entry(f"https://{DOMAIN}/{number}", DOMAIN, priority=-float(number // 2), depth=1)
        for number in range(first, first + count)
    ]


class Held:
    """What the only shard of `frontier` holds."""

    def __init__(self, store: RedisStore, frontier: Frontier) -> None:
        self._store, self._keys = store, frontier.keys.shards[0]

    async def queued(self) -> int:
        return int(await ask(self._store, "ZCARD", self._keys.queue(DOMAIN)))

    async def packed(self) -> int:
        """By the counter, which must agree with the blocks."""
        counted = int(await ask(self._store, "HGET", self._keys.domain(DOMAIN), "packed") or 0)
        names = await self.blocks()
        contents = [await ask(self._store, "GET", self._keys.block(name, DOMAIN)) for name in names]
        assert [size_of(name) for name in names] == [len(rows_of(text)) for text in contents]
        assert counted == sum(map(size_of, names))
        keys = await ask(self._store, "KEYS", self._keys.base.replace("{", "\\{") + "block:*")
        assert len(keys) == len(names)
        return counted

    async def blocks(self) -> list[str]:
        return [name.decode() for name in await ask(self._store, "ZRANGE", self._keys.blocks(DOMAIN), 0, -1)]


async def fetched(
    frontier: Frontier, time: ManualTime, most: int = 10_000, who: tuple[int, str] = (1, "r1")
) -> list[str]:
    """Lease and settle up to `most` URLs. Returns them in order."""
    found: list[str] = []
    idle = 0
    while len(found) < most and idle < 3:
        time.ms += 1_000
        (reply,), _ = await frontier.lease([0], *who, 1)
        idle += not reply.leases
        for lease in reply.leases:
            found += [entry.url for entry in lease.entries]
            await frontier.settle([settle_all(lease)])
    return found
