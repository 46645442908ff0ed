"""Another number of shards: nothing is lost, nothing is added, and nobody works on the shards that are left."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from inspect import isfunction
from pathlib import Path

import pytest

from frontier.counters import Counters
from frontier.crawls import check_new_shards, create_crawl, open_crawl, verify_crawl
from frontier.dead_letters import DeadLetters
from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.errors import BadInput, CrawlLost, CrawlResharded, RedisAway, RedisMisused, Resharding, ShardLost
from frontier.forget import Forgetting
from frontier.keys import ShardKeys, shard_keys
from frontier.queue import Frontier, FrontierSettings, seen_bucket
from frontier.repair import Repair
from frontier.reservations import Reservations
from frontier.reshard import LONGEST, Reshard, open_with_new_shards
from frontier.scripts import (
    ADD_COPIED,
    BEGIN_RESHARD,
    COPY_KEYS,
    END_RESHARD,
    FREEZE_SHARD,
    IDENTIFY_SHARD,
    REMOVE_COPIED,
    REPORT_RESHARD,
    SWITCH_LAYOUT,
    Call,
    Reply,
    command,
    script_call,
)
from frontier.settle import LeasedUrl, SettledUrl, Settlement
from frontier.shard_contents import DOMAIN_KEYS, LEFT_BEHIND, OUTBOX, SEEN, SHARD_KEYS
from frontier.shards import DURABLE_S, lost_shards
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


# The seen-set and queues of a crawl that gets another number of shards.


MANY = 3_000
"""URLs that fill several buckets of each shard."""


@pytest.fixture
async def filled(store: RedisStore, crawl_name: str, time: ManualTime) -> Crawled:
    """A crawl with two shards and `MANY` URLs."""
    return await fill(store, crawl_name, time)


async def fill(store: RedisStore, name: str, time: ManualTime) -> Crawled:
    crawled = Crawled(store, name, time)
    await crawled.clock.refresh()
    await create_crawl(store, name, 2, b"{}")
    frontier = await crawled.open()
    domains = [f"d{number}.test" for number in range(10)]
    for domain in domains:
        await frontier.push([Entry(f"https://{domain}/{page}", domain) for page in range(MANY // len(domains))])
    return crawled


async def test_the_server_copies_whole_buckets_if_a_crawl_gets_more_shards(filled: Crawled, store: RedisStore) -> None:
    """None of the fingerprints passes through the command, and each new shard has those of its old one."""
    before, counting = await seen(filled), CountingStore(store)
    assert await ask(store, "EXISTS", (await filled.open()).keys.shards[1].seen(3))
    await filled.reshard(8, counting)
    assert counting.calls["SMEMBERS"] == 0
    assert sorted(await seen(filled)) == sorted(4 * before)


async def test_buckets_that_have_become_emptier_stay_where_scripts_look_for_them(filled: Crawled) -> None:
    """A shard keeps its number of buckets when URLs are forgotten."""
    before, frontier = await seen(filled), await filled.open()
    crawl = await open_crawl(filled.store, filled.name)
    for number in range(5):
        await Forgetting(filled.store, crawl, frontier, f"d{number}.test").purge(durable_s=0.0)
    left = await seen(filled)
    assert 0 < len(left) < len(before)
    await filled.reshard(8)
    assert sorted(await seen(filled)) == sorted(4 * left)


@pytest.mark.parametrize("fewer", [2, 1])
async def test_the_seen_set_takes_as_much_memory_as_before_when_a_crawl_has_grown_and_shrunk(
    filled: Crawled, store: RedisStore, fewer: int
) -> None:
    """The shards of a growth have most fingerprints in common, and together need few buckets."""
    before = len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*"))
    for shards in (2, fewer):
        await filled.reshard(32)
        grown = len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*"))
        assert grown <= 1.3 * 32 / shards * before
        await filled.reshard(fewer)
        assert len(await ask(store, "KEYS", f"{{{filled.name}:*}}:seen:*")) <= 1.3 * before
    assert len(set(await seen(filled))) == MANY


async def test_shards_of_very_different_sizes_get_as_many_buckets_as_they_need(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """Though one of the shards has a single bucket."""
    crawled = Crawled(store, crawl_name, time)
    await crawled.clock.refresh()
    await create_crawl(store, crawl_name, 4, b"{}")
    frontier = await crawled.open()
    await frontier.push([Entry(f"https://large.test/{page}", "large.test") for page in range(4 * MANY)])
    await frontier.push([Entry("https://small.test/", "small.test")])
    await crawled.reshard(1)
    (only,) = (await crawled.open()).keys.shards
    needed = (4 * MANY + 1) / 208
    assert needed / 1.3 < int(await ask(store, "HGET", only.stats, "buckets")) < 1.3 * needed
    assert len(await seen(crawled)) == 4 * MANY + 1


async def test_a_user_that_may_not_copy_reshards_as_on_a_cluster(tmp_path: Path, time: ManualTime) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        crawled = await fill(store, "crawl", time)
        before, counting = await seen(crawled), CountingStore(store)
        await ask(store, "ACL", "SETUSER", "default", "-copy")
        await crawled.reshard(8, counting)
        assert counting.calls["SMEMBERS"] > 0
        assert sorted(await seen(crawled)) == sorted(4 * before)
        await store.close()


async def test_a_command_that_goes_on_after_another_copies_nothing(filled: Crawled, store: RedisStore) -> None:
    """It may have been stopped for a while, and the other may have removed what it did."""
    old = (await filled.open()).keys.shards[0]
    new = shard_keys(filled.name, 0, 2)
    await ask(store, "HSET", new.stats, "crawl", "filling")
    call = script_call(COPY_KEYS, (new.stats, new.base, old.base), "filling", "seen:0")
    assert await store.send([call, call]) == [[b"arrived"], [b"arrived"]]
    assert await ask(store, "SCARD", new.seen(0)) == await ask(store, "SCARD", old.seen(0))
    await ask(store, "SADD", new.seen(0), 7)
    await ask(store, "DEL", new.seen(1))
    await store.send([call])
    assert await ask(store, "SISMEMBER", new.seen(0), 7)
    await ask(store, "HSET", new.stats, "crawl", "complete")
    late = script_call(COPY_KEYS, (new.stats, new.base, old.base), "filling", "seen:1")
    assert await store.send([late]) == [[b"lost"]]
    assert not await ask(store, "EXISTS", new.seen(1))


async def test_fingerprints_that_old_shards_have_in_common_are_written_once(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """After a growth, the shards that were one have the same ones, and most of the copy would be theirs."""
    crawled, written = Crawled(store, crawl_name, time), list[str]()
    await crawled.begin(4)

    class Records(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            for words in (call.arguments for call in calls if call.script is ADD_COPIED):
                at = 1
                while at < len(words):
                    last = at + 4 + int(words[at + 3])
                    written.extend(str(word) for word in words[at + 4 : last] if words[at + 1] == "SADD")
                    at = last
            return await super().send(calls)

    await crawled.reshard(16)
    before, records = await seen(crawled), Records(store)
    await crawled.reshard(4, records)
    after = await seen(crawled)
    assert set(after) == set(before)
    assert len(before) == 4 * len(set(before))
    assert len(written) == len(after) == len(set(after))


async def seen(crawled: Crawled) -> list[str]:
    """The fingerprints of all shards. Each is in the bucket in which scripts look for it."""
    found: list[str] = []
    for of in (await crawled.open()).keys.shards:
        buckets = int(await ask(crawled.store, "HGET", of.stats, "buckets") or 1)
        for bucket in range(buckets):
            members = await ask(crawled.store, "SMEMBERS", of.seen(bucket))
            assert all(seen_bucket(int(member), buckets) == bucket for member in members)
            found += map(str, members)
    return found


async def test_the_server_copies_queues_that_are_not_too_long(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    crawled, copied = Crawled(store, crawl_name, time), set[str]()
    await crawled.clock.refresh()
    crawl = await create_crawl(store, crawl_name, 4, b"{}")
    frontier = Frontier(store, crawl.keys, crawled.clock, FrontierSettings(pack_above=0), crawl.fingerprint_key)
    sizes = {"short.test": 1, "longest.test": LONGEST, "huge.test": LONGEST + 1}
    await frontier.push(
        [Entry(f"https://{domain}/{page}", domain) for domain, size in sizes.items() for page in range(size)]
    )

    class Watched(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            names = (str(word) for call in calls if call.script is COPY_KEYS for word in call.arguments[-1:])
            copied.update(name for name in names if name.startswith("q:"))
            return await super().send(calls)

    for shards in (16, 2):
        copied.clear()
        await crawled.reshard(shards, Watched(store))
        assert copied == {"q:short.test", "q:longest.test"}
        keys = (await open_crawl(store, crawl_name)).keys
        of = {domain: keys.shards[shard_of(domain, shards)] for domain in sizes}
        queued = await store.send([command("ZRANGE", of[domain].queue(domain), 0, -1) for domain in sizes])
        assert [len(urls) for urls in queued] == list(sizes.values())


# How long a crawl stands still while it gets another number of shards, as the command reports it.


async def prepare(crawled: Crawled) -> Reshard:
    return Reshard(crawled.store, await meta(crawled), (crawled.time, crawled.clock), 16, 1)


async def test_a_standstill_lasts_from_the_last_settled_url_to_the_next_one(
    crawled: Crawled, store: RedisStore
) -> None:
    """It is longer than the command, because replicas take some time to notice that they may continue."""
    crawled.time.ms += 2_000
    settled_ms, work = crawled.time.ms - 2_000, await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    crawled.time.ms = settled_ms + 100_000
    frontier = await crawled.open()
    leased, _ = await frontier.lease(range(16), 1, "r2", 100)
    first, *_, second = [lease for reply in leased for lease in reply.leases]
    assert first.shard != second.shard
    for lease in (first, second):
        urls = [SettledUrl(lease.entries[0], "done", "ok")]
        await frontier.settle([Settlement(lease, crawled.time.ms, urls=urls)])
        crawled.time.ms += 1_000
    assert await work.standstill_ms(last_token) == 100_000


@pytest.mark.parametrize("idle_s", [10, 70])
async def test_a_crawl_without_replicas_does_not_stand_still(crawled: Crawled, idle_s: int) -> None:
    crawled.time.ms += 1_000 * idle_s
    work = await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    before = crawled.time.ms
    assert await work.standstill_ms(last_token) is None
    waited_s = (crawled.time.ms - before) / 1_000
    assert waited_s == (pytest.approx(30, abs=1) if idle_s == 10 else 0)


async def test_nobody_waits_for_a_crawl_that_has_ended(crawled: Crawled) -> None:
    await crawled.finish()
    work = await prepare(crawled)
    last_token = await open_with_new_shards(work, await meta(crawled), silent)
    before = crawled.time.ms
    assert await work.standstill_ms(last_token) is None
    assert crawled.time.ms == before


# Servers that lose the last writes of a reshard leave it whole, and so do repairs beside it.


async def test_nothing_is_leased_from_new_shards_before_the_servers_keep_the_switch(
    crawled: Crawled, store: RedisStore
) -> None:
    """A server that is restarted without the switch has lost nothing but the switch."""
    before = await open_crawl(store, crawled.name)
    work = await crawled.freeze(16)
    last_token = await work.copy(silent)
    kept = await ask(store, "HGETALL", before.keys.meta)
    await work.switch(last_token)
    await ask(store, "DEL", before.keys.meta)
    await ask(store, "HSET", before.keys.meta, *kept)
    with pytest.raises(RedisAway, match="has lost the last step"):
        await work.open(last_token)
    crawled.time.ms += 10_000  # its report is old by then
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))


@pytest.mark.parametrize("log", ["always", "everysec", "none"])
async def test_a_server_with_a_log_says_when_it_has_synced_the_copy(tmp_path: Path, log: str) -> None:
    """One without a log keeps nothing, however long one waits."""
    options = ("--appendonly", "yes", "--appendfsync", "everysec") if log == "everysec" else ()
    time = ManualTime()
    with ValkeyProcess(tmp_path, persistent=log == "always", options=options) as valkey:
        store = await connect(valkey.url)
        if await ask(store, "COMMAND", "INFO", "WAITAOF") == [None]:
            pytest.skip("before Redis 7.2, a server cannot say it")
        crawled = Crawled(store, "crawl", time)
        await crawled.begin(4)
        work = await crawled.freeze(8)
        began_ms = time.ms
        last_token = await work.copy(silent)
        await work.switch(last_token)
        await work.open(last_token)
        assert time.ms == began_ms  # nobody has slept
        found = await store.info("persistence")
        assert log == "none" or int(found["aof_pending_bio_fsync"]) == 0
        await store.close()


async def test_a_server_that_cannot_say_it_is_given_the_time(crawled: Crawled, store: RedisStore) -> None:
    class Older(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if any(call.arguments[0] == "WAITAOF" for call in calls):
                raise RedisMisused("ERR unknown command 'WAITAOF'")
            return await super().send(calls)

    began_ms = crawled.time.ms
    await crawled.reshard(16, Older(store))
    assert crawled.time.ms >= began_ms + 2 * 1000 * DURABLE_S


@pytest.mark.parametrize("step", ["begins", "copies"])
async def test_a_command_whose_claim_was_lost_and_given_to_another_removes_nothing(
    crawled: Crawled, store: RedisStore, step: str
) -> None:
    """The server of the key `meta` was replaced by one that lacked the claim. Both have the same number then."""
    opened, before = await open_crawl(store, crawled.name), dict[str, object]()

    async def lose_the_claim() -> None:
        fields = ("resharding", "reshard_may_switch", "reshard_claims", "reshard_progress")
        await store.send([command("HDEL", opened.keys.meta, *fields)])
        await crawled.reshard(16)
        before.update(await contents(crawled))

    def is_due(call: Call) -> bool:
        return call.arguments[0] == "SET" if step == "begins" else call.script is IDENTIFY_SHARD

    slow = Meanwhile(store, is_due, lose_the_claim)
    first = Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1)
    with pytest.raises(CrawlLost):
        await first.begin(silent)
        await first.copy(silent)
    assert before
    assert await contents(crawled) == before
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_shards_whose_reshard_was_lost_are_not_taken_for_lost_ones(crawled: Crawled, store: RedisStore) -> None:
    """Nor for those of another crawl, whose keys the user would remove."""
    opened = await open_crawl(store, crawled.name)
    await Reshard(store, opened, (crawled.time, crawled.clock), 16, 1).begin(silent)
    fields = ("resharding", "reshard_may_switch", "reshard_claims", "reshard_progress")
    await store.send([command("HDEL", opened.keys.meta, *fields)])

    with pytest.raises(CrawlResharded, match=r"has frozen 4 of its 4 shards.*`crawler reshard --shards N` again"):
        await Repair(store, opened, crawled.clock, 0).begin()
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_repair_restores_lost_shards_beside_frozen_ones(crawled: Crawled, store: RedisStore) -> None:
    opened = await open_crawl(store, crawled.name)
    await Reshard(store, opened, (crawled.time, crawled.clock), 16, 1).begin(silent)
    base = opened.keys.shards[2].base
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{base}*")])
    repair = Repair(store, opened, crawled.clock, 0)
    assert await repair.begin() == [2]
    await repair.finish()
    assert set(await lost_shards(store, opened.keys)) == {0, 1, 3}


async def test_shards_of_a_command_whose_claim_was_lost_are_not_called_those_of_another_crawl(
    crawled: Crawled, store: RedisStore
) -> None:
    """The command after that gets its number, but not its shards. The next one has another number."""
    work = await crawled.freeze(16)
    await work.copy(silent)
    opened = await meta(crawled)
    await store.send([command("HSET", opened.keys.meta, "reshard_claims", 0)])
    with pytest.raises(CrawlResharded, match=r"belong to another command.*again"):
        await crawled.reshard(16)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


class Watched(CountingStore):
    """`sent`: the scripts and commands, in order."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.sent: list[object] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.sent += [call.script or call.arguments[0] for call in calls]
        return await super().send(calls)


async def test_what_a_server_has_to_keep_is_synced_after_a_reshard_was_undone(
    crawled: Crawled, store: RedisStore
) -> None:
    """Otherwise the reshard could be back when the command has said that it is undone."""
    await crawled.freeze(16)
    watched = Watched(store)
    await Reshard(watched, await meta(crawled), (crawled.time, crawled.clock), 16, 1).cancel(silent)
    assert "WAITAOF" in watched.sent[watched.sent.index(END_RESHARD) :]


async def test_a_copy_is_synced_before_the_switch(crawled: Crawled, store: RedisStore) -> None:
    """Otherwise one server could keep the switch, and another lose a part of the copy."""
    watched = Watched(store)
    work = Reshard(watched, await open_crawl(store, crawled.name), (crawled.time, crawled.clock), 16, 1)
    await work.begin(silent)
    await work.copy(silent)
    last = max(at for at, one in enumerate(watched.sent) if one is IDENTIFY_SHARD)
    assert "WAITAOF" in watched.sent[last:]


async def test_old_keys_on_a_server_that_is_replaced_meanwhile_are_looked_for_again(
    crawled: Crawled, store: RedisStore
) -> None:
    class Replaced(CountingStore):
        run = "before"

        def run_of(self, key: str) -> str:
            return self.run

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            if calls[0].script is REMOVE_COPIED:
                self.run = "after"
            return await super().send(calls)

    with pytest.raises(RedisAway, match="was restarted or replaced meanwhile; run the command again"):
        await crawled.reshard(16, Replaced(store))
    assert (await open_crawl(store, crawled.name)).former == 4
    await crawled.reshard(16)
    assert (await open_crawl(store, crawled.name)).former == 0


async def test_a_shard_that_was_repaired_after_a_reshard_gives_out_tokens_of_its_layout(
    crawled: Crawled, store: RedisStore
) -> None:
    """Otherwise nobody could tell what was settled under its leases."""
    await crawled.reshard(16)
    crawl, frontier = await open_crawl(store, crawled.name), await crawled.open()
    shard = frontier.shard_of(DOMAINS[0])
    base = crawl.keys.shards[shard].base
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{base}*")])
    repair = Repair(store, crawl, crawled.clock, 0)
    assert await repair.begin() == [shard]
    entry = Entry(f"https://{DOMAINS[0]}/", DOMAINS[0])
    await repair.push([entry])
    await repair.finish()
    leased, _ = await frontier.lease([shard], 2, "r2", 100)
    lease = leased[0].leases[0]
    assert lease.token > crawl.last_tokens[-1]
    url = LeasedUrl(lease.shard, lease.domain, lease.token, lease.entries[0])
    assert await frontier.revoke([url]) == [True]


# Commands of a reshard that come late change nothing of another one.


class Meanwhile(CountingStore):
    """Something else happens just before the first call for which `is_due` is true."""

    def __init__(
        self, store: RedisStore, is_due: Callable[[Call], bool], happens: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(store)
        self._is_due = is_due
        self._happens = happens
        self._has_happened = False

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self._is_due(calls[0]) and not self._has_happened:
            self._has_happened = True
            await self._happens()
        return await super().send(calls)


def undone(crawled: Crawled, is_due: Callable[[Call], bool]) -> Meanwhile:
    """Another command undoes the reshard."""

    async def cancel() -> None:
        opened = await meta(crawled)
        await Reshard(crawled.store, opened, (crawled.time, crawled.clock), 16, 1).cancel(silent)

    return Meanwhile(crawled.store, is_due, cancel)


async def test_a_command_that_was_suspended_until_it_was_undone_freezes_nothing(
    crawled: Crawled, store: RedisStore
) -> None:
    opened = await open_crawl(store, crawled.name)

    slow = undone(crawled, lambda call: call.script is FREEZE_SHARD)
    first = Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1)
    with pytest.raises(CrawlResharded, match="was undone"):
        await first.begin(silent)
    await crawled.open()
    assert not await lost_shards(store, opened.keys)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))


async def test_a_copy_that_lacks_seen_urls_is_not_switched_to(crawled: Crawled, store: RedisStore) -> None:
    """Otherwise they would be fetched again."""

    class Loses(CountingStore):
        """Loses the new seen-sets before they are counted."""

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            new = [call.key for call in calls if not call.script and call.arguments[0] == "SCARD" and "@" in call.key]
            if new:
                await super().send([command("DEL", key) for key in new])
            return await super().send(calls)

    with pytest.raises(CrawlLost, match="the copy of 'seen' is not equal"):
        await crawled.reshard(16, Loses(store))
    assert (await meta(crawled)).shards == 4


async def test_a_command_whose_reshard_is_undone_while_it_compares_says_so(crawled: Crawled, store: RedisStore) -> None:
    """The copy is not equal then, but nothing is lost, and there is nothing more to undo."""
    opened = await open_crawl(store, crawled.name)
    filled = opened.keys_of((1,), 16).shards

    slow = undone(crawled, lambda call: call.arguments[:2] == ("ZCARD", filled[0].waiting))
    work = Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1)
    await work.begin(silent)
    with pytest.raises(CrawlResharded, match="was undone, or another command continues it"):
        await work.copy(silent)
    assert len(set(await crawled.finish())) > 0


async def test_a_link_that_two_shards_keep_is_kept_once_by_the_shard_that_follows_both(
    crawled: Crawled, store: RedisStore
) -> None:
    frontier, link = await crawled.open(), Entry("https://far.test/twice", "far.test")
    home = frontier.shard_of(link.domain)
    await frontier.keep_links({0: [(home, link)], 2: [(home, link)]})
    before = await Counters(store, frontier.keys).counts()
    await crawled.reshard(2)
    after = await Counters(store, (await crawled.open()).keys).counts()
    assert (before.outbox, after.outbox) == (3, 2)
    fetched = await crawled.finish()
    assert link.url in fetched
    assert len(fetched) == len(set(fetched))


class Recording(CountingStore):
    """Keeps the calls of scripts, and those that remove keys, so that they can arrive again."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.kept: list[Call] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.kept += (call for call in calls if call.script is not None or call.arguments[0] == "UNLINK")
        return await super().send(calls)


@pytest.mark.parametrize("ended", ["cancelled", "completed"])
@pytest.mark.parametrize("step", ["frozen", "copied", "switched", "opened"])
async def test_calls_of_an_earlier_reshard_that_arrive_late_change_nothing(
    crawled: Crawled, store: RedisStore, ended: str, step: str
) -> None:
    earlier = Recording(store)
    work = Reshard(earlier, await open_crawl(store, crawled.name), (crawled.time, crawled.clock), 16, 1)
    await work.begin(silent)
    last_token = await work.copy(silent)
    if ended == "completed":
        await work.switch(last_token)
        await work.open(last_token)
        await work.clean(last_token, silent)
    else:
        undoing = Reshard(earlier, await meta(crawled), (crawled.time, crawled.clock), 16, 1)
        await undoing.cancel(silent)
        # The one that was undone has given up its switch, which is on its way.
        earlier.kept.append(script_call(SWITCH_LAYOUT, [work._old.meta], "", 16, last_token, 1))
    assert {"freeze_shard", "add_copied", "copy_keys", "identify_shard", "end_reshard"} <= earlier.calls.keys()
    earlier.kept.append(script_call(REPORT_RESHARD, [work._old.meta], f"1 1 {crawled.time.ms} earlier"))

    crawled.time.ms += 20_000  # nobody takes the earlier command for one that is at work
    later = Reshard(
        store,
        await open_crawl(store, crawled.name),
        (crawled.time, crawled.clock),
        4 if ended == "completed" else 16,
        1,
    )
    await later.begin(silent)
    if step != "frozen":
        last_token = await later.copy(silent)
    if step in ("switched", "opened"):
        await later.switch(last_token)
    if step == "opened":
        await later.open(last_token)
    before = await contents(crawled)
    for call in earlier.kept:
        await store.send([call])
        now = await contents(crawled)
        # Each command fills shards of its own. What it adds to them late, nobody looks at.
        assert {key: now.get(key) for key in before} == before, (call.script, call.keys, call.arguments)
    if step == "frozen":
        last_token = await later.copy(silent)
    if step in ("frozen", "copied"):
        await later.switch(last_token)
    if step != "opened":
        await later.open(last_token)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_begin_that_arrives_after_the_reshard_was_undone_begins_nothing(
    crawled: Crawled, store: RedisStore
) -> None:
    """Its command was waiting for the first one, and was killed, so that nobody would complete what it begins."""
    first = await crawled.freeze(16)
    opened = await meta(crawled)
    late = script_call(
        BEGIN_RESHARD, [first._old.meta], "", 16, "late", crawled.time.ms + 20_000, opened.reshard_claims
    )
    await Reshard(store, opened, (crawled.time, crawled.clock), 0, 1).cancel(silent)
    assert await store.send([late]) == [[b"other"]]
    await crawled.open()
    await crawled.reshard(16)


async def contents(crawled: Crawled) -> dict[str, object]:
    """All keys of a crawl, without those that expire within seconds: each as Redis would store it, or the fields of a hash,
    whose order differs between servers."""
    store = crawled.store
    found = [key.decode() for key in await ask(store, "KEYS", f"{{{crawled.name}[:}}]*")]
    keys = [key for key in found if not key.endswith(":acked")]
    kinds = await store.send([command("TYPE", key) for key in keys])
    reads = [command("HGETALL" if kind == b"hash" else "DUMP", key) for key, kind in zip(keys, kinds, strict=True)]
    values = await store.send(reads)
    return {
        key: dict(zip(value[::2], value[1::2], strict=True)) if kind == b"hash" else value
        for key, kind, value in zip(keys, kinds, values, strict=True)
    }


async def lose_shard(crawled: Crawled, shard: int) -> None:
    base = (await meta(crawled)).keys.shards[shard].base
    await crawled.store.send([command("DEL", key) for key in await ask(crawled.store, "KEYS", f"{base}*")])


@pytest.mark.parametrize("lost_first", [True, False])
async def test_a_shard_that_is_repaired_after_a_reshard_was_undone_is_not_frozen_for_it(
    crawled: Crawled, store: RedisStore, lost_first: bool
) -> None:
    """A shard that has lost its data does not know that the reshard was undone."""
    opened = await open_crawl(store, crawled.name)

    async def undo_and_repair() -> None:
        if lost_first:
            await lose_shard(crawled, 2)
        await Reshard(store, await meta(crawled), (crawled.time, crawled.clock), 16, 1).cancel(silent)
        if not lost_first:
            await lose_shard(crawled, 2)
        repair = Repair(store, await open_crawl(store, crawled.name), crawled.clock, 0)
        assert await repair.begin() == [2]
        await repair.finish()

    slow = Meanwhile(store, lambda call: call.script is FREEZE_SHARD, undo_and_repair)
    with pytest.raises(CrawlResharded, match="was undone"):
        await Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1).begin(silent)
    assert not await lost_shards(store, opened.keys)


async def test_what_is_asked_of_former_shards_expires_with_them(crawled: Crawled, store: RedisStore) -> None:
    """The question stores what will never be settled, with its URL."""
    frontier = await crawled.open()
    crawled.time.ms += 100_000
    leased, _ = await frontier.lease(range(4), 1, "r1", 100)
    lease = leased[0].leases[0]
    former = (await open_crawl(store, crawled.name)).keys.shards[lease.shard]
    await crawled.reshard(16)
    await store.send([command("DEL", former.lost), command("HSET", former.owner, "tails", f"0-{lease.token}")])
    asked = LeasedUrl(lease.shard, lease.domain, lease.token, lease.entries[0])
    assert await (await crawled.open()).revoke([asked]) == [True]
    lasts_ms, kept_ms = await store.send([command("PTTL", former.lost), command("PTTL", former.stats)])
    assert 0 < lasts_ms <= kept_ms + 1_000


async def test_a_crawl_of_which_a_domain_is_half_forgotten_gets_no_other_shards(
    crawled: Crawled, store: RedisStore
) -> None:
    """Its queue may be there while it is not due: then the numbers do not agree, and the crawl would stand still."""
    opened, frontier = await open_crawl(store, crawled.name), await crawled.open()
    await Forgetting(store, opened, frontier, DOMAINS[0]).mark()
    with pytest.raises(BadInput, match=r"is being forgotten, or `crawler forget` was interrupted: repeat that command"):
        await crawled.reshard(16)
    assert (await meta(crawled)).resharding is None
    await Forgetting(store, opened, frontier, DOMAINS[0]).purge(durable_s=0)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) > 0
    assert not any(DOMAINS[0] in url for url in fetched)


async def test_a_command_that_is_undone_before_it_copies_leaves_nothing(crawled: Crawled, store: RedisStore) -> None:
    opened = await open_crawl(store, crawled.name)

    slow = undone(crawled, lambda call: call.script is IDENTIFY_SHARD)
    work = Reshard(slow, opened, (crawled.time, crawled.clock), 16, 1)
    await work.begin(silent)
    with pytest.raises(CrawlResharded):
        await work.copy(silent)
    assert not await ask(store, "KEYS", f"{{{crawled.name}:*@*}}:*")
