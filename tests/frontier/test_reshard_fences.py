"""Commands of a reshard that come late change nothing of another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from frontier.counters import Counters
from frontier.crawls import open_crawl
from frontier.entries import Entry
from frontier.errors import BadInput, CrawlResharded
from frontier.forget import Forgetting
from frontier.repair import Repair
from frontier.reshard import Reshard
from frontier.scripts import (
    BEGIN_RESHARD,
    FREEZE_SHARD,
    IDENTIFY_SHARD,
    REPORT_RESHARD,
    SWITCH_LAYOUT,
    Call,
    Reply,
    command,
    script_call,
)
from frontier.settle import LeasedUrl
from frontier.shards import lost_shards
from frontier.store import RedisStore
from tests.frontier.crawled import DOMAINS, PAGES, Crawled, meta, silent
from tests.frontier.helpers import CountingStore, ask


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
