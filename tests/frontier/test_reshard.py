"""Another number of shards: nothing is lost, nothing is added, and nobody works on the shards that are left."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from inspect import isfunction
from pathlib import Path

import pytest

from frontier.counters import Counters
from frontier.crawls import check_new_shards, create_crawl, open_crawl, verify_crawl
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway, RedisMisused, Resharding, ShardLost
from frontier.keys import ShardKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import Repair
from frontier.reservations import Reservations
from frontier.reshard import Reshard, open_with_new_shards
from frontier.scripts import BEGIN_RESHARD, END_RESHARD, FREEZE_SHARD, SWITCH_LAYOUT, Call, Reply, command
from frontier.settle import LeasedUrl, SettledUrl, Settlement
from frontier.shard_contents import DOMAIN_KEYS, LEFT_BEHIND, OUTBOX, SEEN, SHARD_KEYS
from frontier.shards import lost_shards
from frontier.store import RedisStore, connect
from tests.frontier.crawled import DOMAINS, KNOWN_MS, PAGES, Crawled, Kills, KillsBefore, Stopped, meta, silent
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.valkey import ValkeyProcess


@pytest.mark.parametrize("shards", [1, 2, 16])
async def test_all_that_commands_show_is_the_same_and_each_url_left_is_fetched_once(
    crawled: Crawled, store: RedisStore, crawl_name: str, time: ManualTime, shards: int
) -> None:
    await crawled.freeze(shards)  # before, so that the lease of the killed holder has ended on both sides
    before_crawl = await open_crawl(store, crawl_name, for_reshard=True)
    before = await Counters(store, before_crawl.keys).counts()
    await crawled.reshard(shards)
    after = await Counters(store, (await open_crawl(store, crawl_name)).keys).counts()
    assert (after.accepted, after.settled, after.waiting, after.outbox, after.domains, after.reasons) == (
        *(before.accepted, before.settled, before.waiting, before.outbox, before.domains, before.reasons),
    )
    left = after.open
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))
    assert left <= len(fetched) <= left + 1  # the link in the outbox counts when it is pushed


@pytest.mark.parametrize("after", range(1, 43))
async def test_a_killed_command_is_completed_by_the_next_one(crawled: Crawled, store: RedisStore, after: int) -> None:
    with contextlib.suppress(Stopped):
        await crawled.reshard(16, Kills(store, after))
    left = await meta(crawled)
    if left.resharding:
        with pytest.raises(Resharding):
            await crawled.open()
    if left.shards == 4 or left.former:
        await crawled.reshard(16)
    assert (await meta(crawled)).shards == 16
    assert len(await crawled.letters()) == 20
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


@pytest.mark.parametrize("killed", [2, 6, 12, 22])
async def test_a_killed_reshard_can_be_cancelled_also_in_several_attempts(
    crawled: Crawled, store: RedisStore, killed: int
) -> None:
    with contextlib.suppress(Stopped):
        await crawled.reshard(16, Kills(store, killed))
    for after in (1, 3, 6, 10_000):  # the last one has to look at the keys of all other tests, too
        if (opened := await meta(crawled)).resharding:
            work = Reshard(Kills(store, after), opened, (crawled.time, crawled.clock), 0, 1)
            with contextlib.suppress(Stopped):
                await work.cancel(silent)
    assert not await ask(store, "KEYS", f"{{{crawled.name}:*@2}}:*")
    await crawled.reshard(2)  # another number
    assert len(await crawled.letters()) == 20
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_reshard_that_has_switched_cannot_be_cancelled(crawled: Crawled, store: RedisStore) -> None:
    with contextlib.suppress(Stopped):
        await crawled.reshard(16, KillsBefore(store, END_RESHARD))
    opened = await meta(crawled)
    assert opened.former
    with pytest.raises(CrawlResharded):
        await Reshard(store, opened, (crawled.time, crawled.clock), 0, 1).cancel(silent)


async def test_a_second_command_is_refused_while_the_first_one_reports(crawled: Crawled, store: RedisStore) -> None:
    """A command that has begun and is silent was killed, so the next one takes over."""
    first, opened = await crawled.freeze(16), await meta(crawled)
    reported = [f"0 0 {crawled.time.ms + later} other" for later in (0, 1_000, 2_000)]

    class Reports(CountingStore):
        """Another command reports each second."""

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if calls[0].script is BEGIN_RESHARD:
                await ask(store, "HSET", first._old.meta, "reshard_progress", reported.pop(0))
            return await super().send(calls)

    second = Reshard(Reports(store), opened, (crawled.time, crawled.clock), 16, 1)
    with pytest.raises(CrawlResharded, match="another command is resharding"):
        await second.begin(silent)
    await crawled.reshard(16)


async def test_a_whole_second_command_waits_until_the_first_has_been_silent_for_ten_seconds(
    crawled: Crawled, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it reports its progress, too, from before it has begun."""
    monkeypatch.setattr("frontier.reshard.REPORT_S", 0.001)
    first = await crawled.freeze(16)
    _, _, silent_since_ms, _ = (await ask(store, "HGET", first._old.meta, "reshard_progress")).split()
    begun: list[int] = []
    await open_with_new_shards(
        Reshard(store, opened := await meta(crawled), (crawled.time, crawled.clock), 16, 1),
        opened,
        lambda step, done, total: begun.append(crawled.time.ms) if step == "begun" else None,
    )
    assert begun[0] >= int(silent_since_ms) + 10_000


async def test_leases_are_returned_before_a_shard_is_frozen(crawled: Crawled, store: RedisStore) -> None:
    """Replicas have some seconds for their requests in flight, and nothing is fetched twice then."""
    frontier = await crawled.open()
    crawled.time.ms += 100_000
    leased, _ = await frontier.lease(range(4), 1, "r1", 100)
    leases = [lease for reply in leased for lease in reply.leases]

    class Settles(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if leases and calls[0].arguments[0] == "ZCARD":
                lease = leases.pop()
                urls = [SettledUrl(entry, "done", "ok") for entry in lease.entries]
                await frontier.settle([Settlement(lease, crawled.time.ms, urls=urls)])
            return await super().send(calls)

    settled = {entry.url for lease in leases for entry in lease.entries}
    await crawled.reshard(16, Settles(store))
    assert not leases
    assert settled.isdisjoint(await crawled.finish())


async def test_known_pages_move_with_their_domain(crawled: Crawled, store: RedisStore) -> None:
    crawl = await open_crawl(store, crawled.name)
    before = (await Counters(store, crawl.keys).counts()).known
    await crawled.reshard(8)
    crawl = await open_crawl(store, crawled.name)
    assert (await Counters(store, crawl.keys).counts()).known == before > 0
    crawled.time.ms += KNOWN_MS
    settings = FrontierSettings(batch=50, delay_ms=1, known_share=1.0)
    frontier = Frontier(store, crawl.keys, crawled.clock, settings, crawl.fingerprint_key)
    leased, _ = await frontier.lease(range(8), 2, "r2", 100)
    visits = [one.visit for reply in leased for lease in reply.leases for one in lease.entries if one.visit]
    assert visits == ["57a7e0"] * before


async def test_packed_urls_move_with_their_domain(crawled: Crawled, store: RedisStore, crawl_name: str) -> None:
    async def packed() -> int:
        found = await store.send([command("KEYS", f"*{crawl_name}:*block:*")])
        return len({key.partition(b"}")[2] for key in found[0]})

    before = await packed()
    assert before >= len(DOMAINS)
    await crawled.reshard(16)
    assert await packed() == before


async def test_a_block_that_is_missing_is_noticed(crawled: Crawled, store: RedisStore, crawl_name: str) -> None:
    (found,) = await store.send([command("KEYS", f"*{crawl_name}:*block:*")])
    await store.send([command("DEL", found[0])])
    with pytest.raises(CrawlLost):
        await crawled.reshard(16)


async def test_old_replicas_are_refused(crawled: Crawled, store: RedisStore) -> None:
    old, opened = await crawled.open(), await meta(crawled)
    await crawled.reshard(16)
    with pytest.raises(ShardLost):
        await old.push([Entry("https://new.test/", "new.test")])
    with pytest.raises(CrawlResharded):
        await verify_crawl(store, opened)


@pytest.mark.parametrize("after", [0, -1, 4, 6, 65_537])
def test_bad_numbers_are_refused(after: int) -> None:
    with pytest.raises(BadInput):
        check_new_shards(4, after)


async def test_no_settlement_takes_half_effect_while_a_shard_is_being_frozen(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """A shard with many leases is frozen in several calls. A settlement in between changes nothing."""
    crawled = Crawled(store, crawl_name, time)
    await crawled.clock.refresh()
    await create_crawl(store, crawl_name, 1, b"{}")
    frontier = await crawled.open()
    await frontier.push([Entry(f"https://d{number}.test/", f"d{number}.test") for number in range(100)])
    leased, _ = await frontier.lease([0], 1, "r1", 100)
    for after in (1, 2):  # of the calls that freeze the shard
        with contextlib.suppress(Stopped):
            await crawled.reshard(2, KillsBefore(store, FREEZE_SHARD, after))
        for lease in leased[0].leases[::10]:
            with pytest.raises(ShardLost):
                await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "done", "ok")])])
    await crawled.reshard(2)
    assert len(await crawled.finish()) == 100


async def test_what_was_settled_stays_known_while_a_crawl_is_frozen(crawled: Crawled, time: ManualTime) -> None:
    """A replica that finds its lease stale asks which of its pages were settled, maybe after the freeze."""
    frontier = await crawled.open()
    time.ms += 100_000
    leased, _ = await frontier.lease(range(4), 1, "r1", 100)
    lease = leased[0].leases[0]
    first, second = (LeasedUrl(lease.shard, lease.domain, lease.token, entry) for entry in lease.entries)
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(first.entry, "done", "ok")])])
    await crawled.freeze(16)
    assert await frontier.revoke([first, second]) == [False, True]


async def test_nothing_else_changes_a_frozen_shard(crawled: Crawled, store: RedisStore) -> None:
    frontier = await crawled.open()
    letters = [letter async for letter in DeadLetters(store, frontier.keys).find()]
    await crawled.freeze(16)
    with pytest.raises(ShardLost):
        await DeadLetters(store, frontier.keys).requeue(letters, crawled.time.ms)
    with pytest.raises(ShardLost):
        await Reservations(store, frontier.keys, crawled.clock, 1_000, 1).reserve("d1.test", 1_000)


async def test_without_memory_for_the_copy_the_crawl_goes_on_as_before(tmp_path: Path, time: ManualTime) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        crawled = Crawled(store, "crawl", time)
        await crawled.begin(4)
        with contextlib.suppress(Stopped):
            await crawled.reshard(16, KillsBefore(store, SWITCH_LAYOUT))
        await ask(store, "CONFIG", "SET", "maxmemory", 1)
        assert await ask(store, "KEYS", "{crawl:*@2}:q:*")
        with pytest.raises((RedisAway, RedisMisused), match="OOM"):
            await crawled.reshard(16)
        opened = await meta(crawled)
        work = Reshard(store, opened, (time, crawled.clock), 0, 1)
        with pytest.raises((RedisAway, RedisMisused), match="OOM"):
            await work.cancel(silent)
        assert not await ask(store, "KEYS", "{crawl:*@2}:*")  # which makes room
        await ask(store, "CONFIG", "SET", "maxmemory", 0)
        await work.cancel(silent)
        await crawled.finish()
        await store.close()


async def test_a_shard_that_is_lost_after_the_switch_is_left_to_the_repair(crawled: Crawled, store: RedisStore) -> None:
    with contextlib.suppress(Stopped):
        await crawled.reshard(16, KillsBefore(store, END_RESHARD))
    keys = (await meta(crawled)).keys
    await ask(store, "DEL", keys.shards[5].stats)
    with pytest.raises(ShardLost) as lost:
        await crawled.reshard(16)
    assert lost.value.shards == [5]
    repair = Repair(store, await open_crawl(store, crawled.name), crawled.clock, 0)  # it can be opened
    assert await repair.begin() == [5]
    await repair.finish()
    await crawled.reshard(16)
    assert not (await meta(crawled)).former


async def test_a_shard_that_is_lost_before_the_switch_is_not_taken_for_an_empty_one(
    crawled: Crawled, store: RedisStore
) -> None:
    """Nor does undoing the reshard give it an identity: the repair restores it then."""
    work = await crawled.freeze(16)
    keys = (await meta(crawled)).keys
    await ask(store, "DEL", keys.shards[2].stats)
    with pytest.raises(ShardLost):
        await crawled.reshard(16)
    await work.cancel(silent)
    assert await lost_shards(store, (await open_crawl(store, crawled.name)).keys) == {2: ""}


def test_every_key_of_a_shard_is_moved_or_left_behind() -> None:
    """Leases have ended when the contents are copied."""
    whole = {name for name, value in vars(ShardKeys).items() if type(value).__name__ == "_Key"}
    methods = [value for value in vars(ShardKeys).values() if isfunction(value)]
    named = {value(ShardKeys(""), *range(value.__code__.co_argcount - 1)) for value in methods}
    assert whole == SHARD_KEYS.keys() | LEFT_BEHIND | {OUTBOX, "leases"}
    assert {name.partition(":")[0] for name in named} == DOMAIN_KEYS.keys() | {SEEN, "inflight"}
