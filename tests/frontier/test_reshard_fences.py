"""Commands that come late, and servers that lose the last step, leave a reshard whole."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from frontier.counters import Counters
from frontier.crawls import open_crawl
from frontier.entries import Entry
from frontier.errors import CrawlLost, CrawlResharded, RedisAway, RedisMisused
from frontier.queue import LeasedUrl
from frontier.repair import Repair
from frontier.reshard import DURABLE_S, Reshard, Wanted
from frontier.scripts import FREEZE_SHARD, IDENTIFY_SHARD, SWITCH_LAYOUT
from frontier.shard_identity import lost_shards
from frontier.store import Call, RedisStore, Reply, command, connect, script_call
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.frontier.test_reshard import DOMAINS, PAGES, Crawled, meta, silent
from tests.valkey import ValkeyProcess


@pytest.fixture
async def crawled(store: RedisStore, crawl_name: str) -> Crawled:
    made = Crawled(store, crawl_name, ManualTime())
    await made.begin(4)
    return made


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
        await Reshard(crawled.store, opened, (crawled.time, crawled.clock), Wanted(16, 1)).cancel(silent)

    return Meanwhile(crawled.store, is_due, cancel)


async def test_a_command_that_was_suspended_until_it_was_undone_freezes_nothing(
    crawled: Crawled, store: RedisStore
) -> None:
    opened = await open_crawl(store, crawled.name)

    slow = undone(crawled, lambda call: call.script is FREEZE_SHARD)
    first = Reshard(slow, opened, (crawled.time, crawled.clock), Wanted(16, 1))
    with pytest.raises(CrawlResharded, match="was undone"):
        await first.begin(silent)
    await crawled.open()
    assert not await lost_shards(store, opened.keys)
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched))


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


async def test_a_command_whose_reshard_is_undone_while_it_compares_says_so(crawled: Crawled, store: RedisStore) -> None:
    """The copy is not equal then, but nothing is lost, and there is nothing more to undo."""
    opened = await open_crawl(store, crawled.name)
    filled = opened.keys_of((1,), 16).shards

    slow = undone(crawled, lambda call: call.arguments[:2] == ("ZCARD", filled[0].waiting))
    work = Reshard(slow, opened, (crawled.time, crawled.clock), Wanted(16, 1))
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
    work = Reshard(earlier, await open_crawl(store, crawled.name), (crawled.time, crawled.clock), Wanted(16, 1))
    await work.begin(silent)
    last_token = await work.copy(silent)
    if ended == "completed":
        await work.switch(last_token)
        await work.open(last_token)
        await work.clean(last_token, silent)
    else:
        undoing = Reshard(earlier, await meta(crawled), (crawled.time, crawled.clock), Wanted(16, 1))
        await undoing.cancel(silent)
        # The one that was undone has given up its switch, which is on its way.
        earlier.kept.append(script_call(SWITCH_LAYOUT, [work._old.meta], "", 16, last_token, 1))
    assert {"freeze_shard", "add_copied", "copy_seen", "identify_shard", "end_reshard"} <= earlier.calls.keys()

    later = Reshard(
        store,
        await open_crawl(store, crawled.name),
        (crawled.time, crawled.clock),
        Wanted(4 if ended == "completed" else 16, 1),
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


async def contents(crawled: Crawled) -> dict[str, object]:
    """All keys of a crawl, as Redis would store them, without those that expire within seconds."""
    store = crawled.store
    found = [key.decode() for key in await ask(store, "KEYS", f"{{{crawled.name}[:}}]*")]
    keys = [key for key in found if not key.endswith(":acked")]
    return dict(zip(keys, await store.send([command("DUMP", key) for key in keys]), strict=True))


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
    first = Reshard(slow, opened, (crawled.time, crawled.clock), Wanted(16, 1))
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
    await Reshard(store, opened, (crawled.time, crawled.clock), Wanted(16, 1)).begin(silent)
    fields = ("resharding", "reshard_may_switch", "reshard_claims", "reshard_progress")
    await store.send([command("HDEL", opened.keys.meta, *fields)])

    with pytest.raises(CrawlResharded, match=r"has frozen 4 of its 4 shards.*`crawler reshard --shards N` again"):
        await Repair(store, opened, crawled.clock, 0).begin()
    await crawled.reshard(16)
    fetched = await crawled.finish()
    assert len(fetched) == len(set(fetched)) == len(DOMAINS) * PAGES - 30 - 20 + 1


async def test_a_repair_restores_lost_shards_beside_frozen_ones(crawled: Crawled, store: RedisStore) -> None:
    opened = await open_crawl(store, crawled.name)
    await Reshard(store, opened, (crawled.time, crawled.clock), Wanted(16, 1)).begin(silent)
    base = opened.keys.shards[2].base
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{base}*")])
    repair = Repair(store, opened, crawled.clock, 0)
    assert await repair.begin() == [2]
    await repair.finish()
    assert set(await lost_shards(store, opened.keys)) == {0, 1, 3}


async def test_a_command_that_is_undone_before_it_copies_leaves_nothing(crawled: Crawled, store: RedisStore) -> None:
    opened = await open_crawl(store, crawled.name)

    slow = undone(crawled, lambda call: call.script is IDENTIFY_SHARD)
    work = Reshard(slow, opened, (crawled.time, crawled.clock), Wanted(16, 1))
    await work.begin(silent)
    with pytest.raises(CrawlResharded):
        await work.copy(silent)
    assert not await ask(store, "KEYS", f"{{{crawled.name}:*@*}}:*")


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
