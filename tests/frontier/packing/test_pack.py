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
from frontier.lookup import UrlLookup
from frontier.packing import LARGEST, rows_of, size_of
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import Ended, Repair
from frontier.scripts import UNPACK, command, script_call
from frontier.settle import SettledUrl, Settlement, with_next_visit
from frontier.shards import identify_shards
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, lease_one, make_frontier, settle_all
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
