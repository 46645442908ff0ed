"""Packed queues: nothing is lost or added, and the order of priority holds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from frontier.clock import ServerClock
from frontier.counters import Counters, survey
from frontier.crawls import create_crawl
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.lookup import UrlLookup
from frontier.packing import LARGEST, Sizes, block_of, rest_of, rows_of, size_of
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import Ended, Repair
from frontier.scripts import PACK, UNPACK, Call, Reply, command, script_call
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.shards import identify_shards
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, ask, lease_one, make_frontier, settle_all
from tests.frontier.packing.queued_domain import DOMAIN, SETTINGS, Held, fetched, urls


class TestPack:
    async def test_the_urls_of_the_lowest_priority_are_packed(
        self, frontier: Frontier, held: Held, counters: Counters
    ) -> None:
        for first in range(0, 100, 20):
            await frontier.push(urls(20, first))
        assert 4 <= await held.queued() <= 10
        assert await held.queued() + await held.packed() == 100
        assert (await counters.counts()).open == 100
        assert all(size_of(name) <= 16 for name in await held.blocks())

    async def test_a_queue_below_the_limit_is_left_alone(self, frontier: Frontier, held: Held) -> None:
        await frontier.push(urls(15))
        assert (await held.queued(), await held.blocks()) == (15, [])

    async def test_all_are_fetched_once_in_the_order_of_priority(
        self, frontier: Frontier, time: ManualTime, counters: Counters, held: Held
    ) -> None:
        await frontier.push(urls(100))
        found = await fetched(frontier, time)
        assert sorted(found) == sorted(entry.url for entry in urls(100))
        numbers = [int(url.rpartition("/")[2]) // 2 for url in found]
        assert numbers == sorted(numbers)
        assert await counters.has_ended()
        assert await held.packed() == 0

    async def test_later_urls_take_their_place_by_priority(self, frontier: Frontier, time: ManualTime) -> None:
        """Those pushed before, between and after the packed ones."""
        await frontier.push(urls(60, 20))
        first = await fetched(frontier, time, 10)
        await frontier.push([*urls(20), *urls(20, 80)])
        numbers = [int(url.rpartition("/")[2]) // 2 for url in await fetched(frontier, time)]
        assert numbers == sorted(numbers)
        assert len(first) + len(numbers) == 100

    async def test_a_growing_queue_fills_its_last_block(self, frontier: Frontier, held: Held) -> None:
        for number in range(120):
            await frontier.push(urls(1, number))
        sizes = [size_of(name) for name in await held.blocks()]
        assert len(sizes) <= 9
        assert await held.queued() <= 8
        assert await held.packed() + await held.queued() == 120

    @pytest.mark.parametrize("levels", [[0], [0, -1, -2], [0, -2, -1], [0, -1, 0]])
    async def test_blocks_become_full_whatever_the_order_of_priorities(
        self, frontier: Frontier, held: Held, levels: Sequence[int]
    ) -> None:
        frontier.settings = FrontierSettings(pack_above=1_000)
        for number, level in enumerate(level for level in levels for _ in range(25)):
            new = [f"https://{DOMAIN}/{number}/{of}" for of in range(500)]
            await frontier.push([Entry(url, DOMAIN, priority=level, depth=1) for url in new])
        sizes = [size_of(name) for name in await held.blocks()]
        assert sum(sizes) > 12_000 * len(levels)
        assert sum(size < 0.9 * LARGEST for size in sizes) <= 1

    async def test_what_was_packed_stays_if_packing_is_switched_off(
        self, frontier: Frontier, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        await frontier.push(urls(100))
        frontier.settings = FrontierSettings(batch=2, delay_ms=1, pack_above=0)
        await frontier.push(urls(20, 100))
        assert len(await fetched(frontier, time)) == 120

    async def test_a_queue_that_became_small_takes_little_memory(self, frontier: Frontier, store: RedisStore) -> None:
        frontier.settings = FrontierSettings(batch=2, pack_above=200)
        await frontier.push(urls(500))
        assert await ask(store, "OBJECT", "ENCODING", frontier.keys.shards[0].queue(DOMAIN)) == b"listpack"

    async def test_known_pages_that_are_due_do_not_make_a_queue_long_and_stay_queued(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        settings = FrontierSettings(batch=4, delay_ms=1, pack_above=100, known_share=0.5)
        frontier = await make_frontier(store, crawl_name, time, settings)
        await frontier.push(urls(64))
        due_ms = time.ms + 10_000_000
        for _ in range(16):
            time.ms += 1_000
            lease = await lease_one(frontier)
            known = [with_next_visit(SettledUrl(one, "done", "200"), "new", due_ms, "a1") for one in lease.entries]
            await frontier.settle([Settlement(lease, 0, urls=known)])
        time.ms = due_ms
        await frontier.push(urls(200, 100))
        for number in range(20):
            time.ms += 1_000
            await frontier.push(urls(30, 1_000 * (number + 1)))
            assert (await frontier.lease([0], 1, "r1", 0))[1] == []  # queues the visits that are due
            await frontier.settle([settle_all(await lease_one(frontier))])


class TestAgain:
    async def test_a_seed_that_is_queued_again_leaves_other_blocks_packed(
        self, frontier: Frontier, store: RedisStore, held: Held
    ) -> None:
        frontier.settings = FrontierSettings(pack_above=1_000)
        seeds = [Entry(f"https://{DOMAIN}/{number}", DOMAIN) for number in range(20_000)]
        for first in range(0, len(seeds), 500):
            await frontier.push(seeds[first : first + 500])
        blocks, queued = await held.blocks(), await held.queued()
        await frontier.push([Entry(seeds[0].url, DOMAIN, mode="again")])
        assert len({*blocks} - {*await held.blocks()}) <= 3  # its own, and those that took its rest
        assert await held.queued() <= queued + 500
        await frontier.push([Entry(one.url, DOMAIN, mode="again") for one in seeds[:500]])
        assert await held.queued() + await held.packed() == 20_000
        assert await held.queued() <= 2_000

    async def test_seeds_that_are_queued_again_while_packed_are_fetched_once(
        self, frontier: Frontier, time: ManualTime, counters: Counters, held: Held
    ) -> None:
        seeds = [Entry(f"https://{DOMAIN}/{number}", DOMAIN) for number in range(60)]
        await frontier.push(seeds)
        assert await held.packed() > 0
        again = [Entry(seed.url, DOMAIN, mode="again") for seed in seeds]
        for _ in range(3):
            await frontier.push(again)
        found = await fetched(frontier, time)
        assert Counter(found) == Counter(seed.url for seed in seeds)
        assert (await counters.counts()).open == 0
        assert await counters.has_ended()

    async def test_blocks_without_seeds_stay_packed(self, frontier: Frontier, held: Held) -> None:
        await frontier.push(urls(60))
        before = await held.packed()
        frontier.settings = FrontierSettings(pack_above=0)
        await frontier.push([Entry(f"https://{DOMAIN}/", DOMAIN, mode="again")])
        assert await held.packed() == before

    async def test_a_url_that_is_leased_or_queued_when_its_twin_is_unpacked_counts_once(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, counters: Counters, held: Held
    ) -> None:
        """A race: the seed was packed again just before it was queued again."""
        await frontier.push(urls(60))
        keys = frontier.keys.shards[0]
        name = (await held.blocks())[0]
        rows = rows_of(await ask(store, "GET", keys.block(name, DOMAIN)))
        await ask(store, "ZADD", keys.queue(DOMAIN), "1e9", rows[0][1], "1e8", rows[1][1], "1e7", rows[2][1])
        await ask(store, "HINCRBY", keys.stats, "accepted", 3)
        lease = await lease_one(frontier)
        assert {entry.raw.encode() for entry in lease.entries} == {rows[0][1], rows[1][1]}
        await store.send(
            [
                script_call(
                    UNPACK,
                    (keys.stats, keys.base),
                    *(frontier.keys.identity, DOMAIN, name, "", 0, ""),
                    *(word for row in rows for word in row),
                )
            ]
        )
        await frontier.settle([settle_all(lease)])
        await fetched(frontier, time)
        assert await counters.has_ended()
        assert (await counters.counts()).open == 0


class TestReaders:
    async def test_a_packed_url_is_found(self, frontier: Frontier, store: RedisStore) -> None:
        await frontier.push(urls(100))
        status = await UrlLookup(store, frontier).url(f"https://{DOMAIN}/99", DOMAIN)
        assert status.where == "queued"
        assert status.entry is not None and status.entry.priority == -49.0

    async def test_a_url_that_was_settled_is_not_taken_for_a_packed_one(
        self, frontier: Frontier, store: RedisStore, time: ManualTime
    ) -> None:
        await frontier.push(urls(100))
        (first, *_) = await fetched(frontier, time, 2)
        assert (await UrlLookup(store, frontier).url(first, DOMAIN)).where == "settled"

    async def test_domain_and_survey_count_packed_urls(self, frontier: Frontier, store: RedisStore) -> None:
        await frontier.push(urls(100))
        assert (await UrlLookup(store, frontier).domain(DOMAIN)).queued == 100
        (shard,) = await survey(store, frontier.keys, [0], 0, 1)
        assert [sample.queued for sample in shard.domains] == [100]


async def test_a_repair_finds_settled_urls_in_long_queues(store: RedisStore, crawl_name: str, time: ManualTime) -> None:
    crawl = await create_crawl(store, crawl_name, 1, b"{}")
    await ask(store, "DEL", crawl.keys.shards[0].stats)
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    repair = Repair(store, crawl, clock, 0)
    await repair.begin()
    new = urls(1_500)
    for at in range(0, 1_500, 500):
        await repair.push(new[at : at + 500])
    assert await repair.restore([Ended(entry, "done", "ok") for entry in new]) == 1_500
    await repair.finish()
    assert await Counters(store, crawl.keys).has_ended()


async def test_random_pushes_leases_and_ends_lose_nothing(
    frontier: Frontier, store: RedisStore, time: ManualTime, counters: Counters, held: Held
) -> None:
    """With two replicas, expired leases, and dead letters that are queued again."""
    rng = random.Random(5)
    pushed = 0
    second = await make_frontier(store, frontier.keys.crawl, time, SETTINGS)
    letters = DeadLetters(store, frontier.keys)
    leases = []
    for _ in range(300):
        time.ms += rng.choice((1, 500, 40_000))
        kind, one = rng.randrange(5), rng.choice((frontier, second))
        if kind < 2:
            more = rng.randint(1, 30)
            new = [
                Entry(f"https://{DOMAIN}/{number}", DOMAIN, priority=rng.choice((0.0, -1.0, -2.0, 5.5)), depth=1)
                for number in range(pushed, pushed + more)
            ]
            pushed += more
            await one.push(new)
        elif kind == 2:
            replies, _ = await frontier.lease([0], 1, "r1", 1)
            leases += [lease for reply in replies for lease in reply.leases]
        elif leases and kind == 3:
            lease = leases.pop()
            ends = [SettledUrl(entry, rng.choice(("done", "dead")), "x") for entry in lease.entries]
            await one.settle([Settlement(lease, time.ms, urls=ends)])
        else:
            found = [letter async for letter in letters.find()]
            await letters.requeue(found[:5], time.ms)
        inflight = int(await ask(store, "ZCARD", frontier.keys.shards[0].inflight(DOMAIN)))
        assert (await counters.counts()).open == await held.queued() + await held.packed() + inflight
    time.ms += 100_000
    await fetched(frontier, time)
    assert await counters.has_ended()
    assert await store.send([command("HGET", frontier.keys.shards[0].domain(DOMAIN), "packed")]) == [None]
    await identify_shards(store, frontier.keys, [0])


# Blocks, and how much of a queue is packed into them.


class TestBlocks:
    def test_a_block_keeps_its_entries_and_orders_them_by_priority(self) -> None:
        rows = [(b"-1", b"s01000/b"), (b"2.5", b"s01000/a"), (b"-inf", b"s02000/x y"), (b"-1", b"s01000/a")]
        block = block_of(rows, 7)
        assert rows_of(block.contents) == [rows[1], rows[3], rows[0], rows[2]]
        assert block.order == -2.5
        assert size_of(block.name) == 4

    def test_its_name_tells_whether_it_contains_seeds(self) -> None:
        assert block_of([(b"0", b"s00000/"), (b"0", b"s01000/")], 7).name[4] == "s"
        assert block_of([(b"0", b"s01000/00")], 7).name[4] != "s"

    def test_the_same_entries_packed_later_are_another_block(self) -> None:
        assert block_of([(b"0", b"s00000/")], 7).name != block_of([(b"0", b"s00000/")], 8).name

    def test_the_rest_of_a_block_has_its_order(self) -> None:
        rows = rows_of(block_of([(b"-1", b"s01000/a"), (b"0", b"s00000/"), (b"-1", b"s01000/b")], 7).contents)
        rest = rest_of(rows[1:], 8)
        assert rows_of(rest.contents) == rows[1:] == [(b"-1", b"s01000/a"), (b"-1", b"s01000/b")]
        assert (rest.order, size_of(rest.name)) == (1.0, 2)


class TestSizes:
    @pytest.mark.parametrize(
        ("queued", "packed", "surplus"),
        [(999, 0, 0), (1_000, 0, 500), (500, 100, 436), (125, 900, 0), (126, 900, 62), (2_000, 64_000, 500)],
    )
    def test_what_is_packed(self, queued: int, packed: int, surplus: int) -> None:
        assert Sizes(1_000, 32).surplus(queued, packed) == surplus

    def test_nothing_is_packed_if_it_is_switched_off(self) -> None:
        assert Sizes(0, 32).surplus(10**6, 0) == 0

    @pytest.mark.parametrize("packed", [1, 500, 5_000, 10**6])
    @pytest.mark.parametrize("batch", [1, 32, 1_000])
    def test_what_was_unpacked_for_a_lease_is_not_packed_again_at_once(self, packed: int, batch: int) -> None:
        sizes = Sizes(1_000, batch)
        assert sizes.surplus(2 * batch - 1 + sizes.step(packed), packed) == 0


# Packing and unpacking by several replicas: whoever comes too late changes nothing.


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


# Leases of packed queues: a domain stays due, whoever dies, and the order of priority holds.


class Dies(CountingStore):
    """The process dies before it unpacks anything."""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if any(call.script is UNPACK for call in calls):
            raise RedisAway("died")
        return await super().send(calls)


class TestLease:
    async def test_a_domain_stays_due_until_its_next_block_is_unpacked(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, held: Held
    ) -> None:
        """Its replica died before it unpacked the block."""
        dying = await make_frontier(Dies(store), frontier.keys.crawl, time, SETTINGS)
        await frontier.push(urls(100))
        rest = await fetched(dying, time)
        assert await held.queued() == 0
        assert await ask(store, "ZCARD", frontier.keys.shards[0].due) == 1
        (reply,), _ = await dying.lease([0], 1, "r1", 1)
        assert reply.leases == ()
        assert reply.next_ms is not None and reply.next_ms <= time.ms
        found = rest + await fetched(frontier, time, who=(2, "r2"))
        assert Counter(found) == Counter(entry.url for entry in urls(100))

    async def test_leases_that_end_leave_a_packed_domain_due(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, counters: Counters
    ) -> None:
        """Returned and expired ones, while the queue itself is empty."""
        await frontier.push(urls(100))
        keys = frontier.keys.shards[0]
        all_at_once = FrontierSettings(batch=100, delay_ms=1, pack_above=16)
        dying = await make_frontier(Dies(store), frontier.keys.crawl, time, all_at_once)
        for epoch, end in enumerate(("settle", "release", "expire"), 1):
            time.ms += 300_000
            if epoch > 1:
                await frontier.lease([0], 2 * epoch, "r1", 1)  # unpacks
            lease = await lease_one(dying, 2 * epoch + 1, "r2")
            assert await ask(store, "EXISTS", keys.queue(DOMAIN)) == 0
            if end == "settle":
                await frontier.settle([settle_all(lease)])
            elif end == "release":
                await ask(store, "DEL", keys.inflight(DOMAIN))
                await frontier.release([Settlement(lease, time.ms)])
            else:
                await ask(store, "DEL", keys.inflight(DOMAIN))  # as if all of them had been lost too often
                time.ms += 200_000
                await dying.lease([0], 2 * epoch + 1, "r2", 0)
            assert await ask(store, "ZSCORE", keys.due, DOMAIN) is not None, end

    async def test_packed_urls_are_taken_before_those_of_a_lower_priority(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        await frontier.push(urls(40))
        await frontier.push([Entry(f"https://{DOMAIN}/low{n}", DOMAIN, priority=-1e6, depth=2) for n in range(4)])
        found = await fetched(frontier, time)
        assert all("low" in url for url in found[-4:])
        assert len(found) == 44


@pytest.mark.parametrize("name", ["blocks", "block"])
async def test_packed_urls_that_the_server_has_evicted_cost_their_domain_alone(
    frontier: Frontier, held: Held, store: RedisStore, time: ManualTime, name: str
) -> None:
    """The lease call failed for the whole shard."""
    others = [Entry(f"https://b.test/{number}", "b.test") for number in range(4)]
    await frontier.push([*urls(100), *others])
    keys = frontier.keys.shards[0]
    first = (await held.blocks())[0]
    await ask(store, "DEL", keys.blocks(DOMAIN) if name == "blocks" else keys.block(first, DOMAIN))
    found = await fetched(frontier, time)
    assert {entry.url for entry in others} <= set(found)
    (shard,) = await survey(store, frontier.keys, [0], time.ms, 4)
    assert shard.wrong_types == (f"blocks:{DOMAIN}" if name == "blocks" else f"block:{first}:{DOMAIN}",)
