"""Packing and unpacking by several replicas: whoever comes too late changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from frontier.counters import Counters
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import PACK, UNPACK, Call, Reply
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, ask, lease_one, make_frontier, settle_all
from tests.frontier.packing.queued_domain import SETTINGS, Held, fetched, urls


class Interrupts(CountingStore):
    """Does `meanwhile` before the first call of `script`, or command of that name."""

    def __init__(self, store: RedisStore, script: str, meanwhile: object) -> None:
        super().__init__(store)
        self._script, self._meanwhile = script, meanwhile

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        names = {call.script.name if call.script else call.arguments[0] for call in calls}
        if self._meanwhile and self._script in names:
            meanwhile, self._meanwhile = self._meanwhile, None
            await meanwhile()  # type: ignore[operator]
        return await super().send(calls)


class TestRaces:
    """Another replica comes between the reading of a queue or a block and the script that replaces it."""

    async def interrupted(self, store: RedisStore, crawl: str, time: ManualTime, script: str, work: object) -> Frontier:
        return await make_frontier(Interrupts(store, script, work), crawl, time, SETTINGS)  # type: ignore[arg-type]

    async def check(self, frontier: Frontier, time: ManualTime, counters: Counters, expected: int) -> None:
        assert Counter(await fetched(frontier, time)) == Counter(entry.url for entry in urls(expected))
        assert await counters.has_ended()

    async def test_a_push_into_what_is_packed(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime, counters: Counters, held: Held
    ) -> None:
        frontier.settings = FrontierSettings(batch=2, delay_ms=1, pack_above=0)
        other = await self.interrupted(store, crawl_name, time, "pack", lambda: frontier.push(urls(1, 99)))
        await other.push(urls(16))
        assert await held.packed() == 0
        await other.push(urls(83, 16))
        assert await held.packed() > 0
        await self.check(frontier, time, counters, 100)

    async def test_a_queue_that_was_emptied_before_it_was_read(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime, counters: Counters
    ) -> None:
        frontier.settings = FrontierSettings(batch=1_000, delay_ms=1, pack_above=0)

        async def lease() -> None:
            await frontier.settle([settle_all(await lease_one(frontier))])

        other = await self.interrupted(store, crawl_name, time, "ZRANGE", lease)
        await other.push(urls(40))
        assert await counters.has_ended()

    async def test_two_that_pack_the_same(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime, counters: Counters
    ) -> None:
        await frontier.push(urls(15))
        other = await self.interrupted(store, crawl_name, time, "pack", lambda: frontier.push(urls(20, 80)))
        await other.push(urls(65, 15))
        await self.check(frontier, time, counters, 100)

    async def test_two_that_unpack_the_same(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime, counters: Counters
    ) -> None:
        taken_over: list[str] = []

        async def lease() -> None:
            time.ms += SETTINGS.lease_ms
            taken_over.extend(await fetched(frontier, time, 2, who=(2, "r2")))

        await frontier.push(urls(100))
        other = await self.interrupted(store, crawl_name, time, "unpack", lease)
        while not taken_over:
            late = await fetched(other, time, 2)
        assert taken_over == late
        left = await fetched(frontier, time, who=(3, "r3"))
        assert len(set(left)) == len(left) and not set(left) & set(taken_over)
        assert await counters.has_ended()
        assert (await counters.counts()).done == 100

    async def test_a_late_call_changes_nothing(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, counters: Counters, held: Held
    ) -> None:
        """Each pack and unpack call is repeated at the end."""
        sent: list[Call] = []
        real = store.send

        class Notes(CountingStore):
            async def send(self, calls: Sequence[Call]) -> list[Reply]:
                sent.extend(call for call in calls if call.script in (PACK, UNPACK))
                return await real(calls)

        noted = await make_frontier(Notes(store), frontier.keys.crawl, time, SETTINGS)
        await noted.push(urls(100))
        await fetched(noted, time, 60)
        before = (await held.queued(), await held.packed())
        replies = await store.send(sent)
        assert {reply[0] for reply in replies} == {b"changed", b"gone"}
        assert before == (await held.queued(), await held.packed())
        await fetched(noted, time)
        assert await counters.has_ended()

    async def test_a_shard_that_was_lost_or_frozen_is_left_alone(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime, held: Held
    ) -> None:
        async def freeze() -> None:
            await ask(store, "HSET", frontier.keys.shards[0].stats, "crawl", "moved")

        other = await self.interrupted(store, crawl_name, time, "pack", freeze)
        await other.push(urls(40))
        assert (await held.queued(), await held.packed()) == (40, 0)
