"""Shards that come back in an old state are restored from the lines of pages."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path

import pytest

from crawler.app.engine import build_settings, link_filter
from crawler.app.restore import GROUP_MS, OldState
from crawler.page import LinkKind
from crawler.scope.scope import LinkFilter, RecentUrls, TrapPolicy
from crawler.settings.load import CrawlSettings
from crawler.sinks.lines import iso_time
from frontier.budget import Budget, PageLimit
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters
from frontier.crawls import Crawl, crawl_clock, create_crawl, open_crawl
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import Reshard
from frontier.scripts import Call, Reply
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, ManualTime, ask, lease_one, make_frontier, reshard_crawl


class CutStore(CountingStore):
    """Loses its connection before each of the first three calls that write."""

    cuts = 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self.cuts < 3 and any(call.script for call in calls):
            self.cuts += 1
            raise RedisAway("the connection was lost")
        return await super().send(calls)


def old_state(store: Store, crawl: Crawl, clock: ServerClock, folder: Path) -> OldState:
    settings = CrawlSettings()
    links, policy = link_filter(settings, RecentUrls(1)), build_settings(settings).extract
    return OldState(store, crawl, clock, [folder], links, policy, 0)


def write_line(path: Path, at_s: float, **fields: object) -> None:
    """Write a file with the line of a page that was settled at `at_s`."""
    about = {"domain": "a.test", "outcome": "done", "reason": "ok", "depth": 0, "replica": "r1", "links": []}
    path.write_text(json.dumps({**about, "settled_at": iso_time(at_s), **fields}) + "\n")
    os.utime(path, (at_s + 5, at_s + 5))


async def queue_urls(store: Store, crawl_name: str, urls: Sequence[str]) -> tuple[Crawl, Frontier, ManualTime]:
    """A new crawl with `urls` of a.test in its queue, in this order."""
    crawl, time = await create_crawl(store, crawl_name, 2, b"{}"), ManualTime()
    frontier = await make_frontier(store, crawl_name, time, FrontierSettings(batch=1))
    await frontier.push([Entry(url, "a.test", priority=-number) for number, url in enumerate(urls)])
    return crawl, frontier, time


async def settled_page(store: Store, crawl_name: str) -> tuple[Crawl, ServerClock, float]:
    """A new crawl of which a page of a.test was settled, and when (seconds)."""
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await frontier.push([Entry("https://a.test/", "a.test")])
    shard = crawl.keys.shard_of("a.test")
    lease = await lease_one(frontier, shard=shard)
    await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "ok")])])
    await ask(store, "HDEL", crawl.keys.meta, "created_ms")
    return crawl, clock, int(await ask(store, "HGET", crawl.keys.shards[shard].stats, "last_ms")) / 1000


def elsewhere(crawl: Crawl) -> str:
    """A domain that is not in the shard of a.test."""
    shard = crawl.keys.shard_of("a.test")
    return next(name for name in (f"{n}.test" for n in range(99)) if crawl.keys.shard_of(name) % 2 != shard % 2)


async def test_what_was_settled_since_is_settled_again_and_its_links_are_queued(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    urls = [f"https://a.test/{name}" for name in ("in-flight", "queued", "left", "without-links")]
    # Given a state in which one URL is in flight and others are queued,
    crawl, frontier, _ = await queue_urls(store, crawl_name, urls)
    await ask(store, "HDEL", crawl.keys.meta, "created_ms")
    clock = frontier._clock
    await lease_one(frontier)
    # and lines of pages that were settled afterwards, one of them found afterwards, too,
    at_s = int(clock.now_ms() / 1000) + 10
    about = {"domain": "a.test", "outcome": "done", "reason": "200", "depth": 0, "replica": "r1", "status": 200}
    lines = [
        {**about, "url": urls[0], "links": ["https://a.test/found", "https://a.test/new"], "link_count": 2},
        {**about, "url": urls[1], "links": []},
        {**about, "url": urls[3], "link_count": 7},
        {**about, "url": "https://a.test/found", "links": [], "depth": 1},
        {**about, "url": urls[2], "links": [], "replica": "r2"},  # which removes the page if it is not settled
    ]
    text = "".join(json.dumps({**line, "settled_at": iso_time(at_s)}) + "\n" for line in lines)
    (tmp_path / f"{crawl_name}-r1-1.pages.jsonl").write_text(text)
    # when the shard is restored while connections are lost, twice because two replicas share the folder,
    cut = CutStore(store)
    old = old_state(cut, crawl, clock, tmp_path)
    for _ in range(2):
        await old.restore({0: clock.now_ms()}, "r1")
    assert cut.cuts == 3
    # then the pages count once; their links, and the page whose links are unknown, are left.
    counts = await Counters(store, crawl.keys).counts()
    assert (counts.accepted, counts.done, counts.open) == (6, 3, 3)
    # What was settled before is not looked at, and no lease is granted for a second.
    await old.restore({0: 1000 * at_s + GROUP_MS + 1_000}, "r1")
    assert (await Counters(store, crawl.keys).counts()).done == 3
    ((early,), _) = await frontier.lease([0], 1, "r1", 1)
    assert early.leases == ()


async def test_what_ended_replicas_had_settled_is_settled_again_if_redis_has_forgotten_it(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """As far as it was settled after all that Redis knows: what was settled before may be queued again on purpose."""
    urls = [f"https://a.test/{name}" for name in ("settled", "again", "forgotten", "unfinished")]
    crawl, frontier, time = await queue_urls(store, crawl_name, urls)
    clock = frontier._clock
    at_s = clock.now_ms() / 1000
    for number, (url, after_s) in enumerate(zip(urls, (0, -5, 3, 4), strict=True)):
        path = tmp_path / f"{crawl_name}-r1-{number}.pages.jsonl{'.open' if number == 3 else ''}"
        write_line(path, at_s + after_s, url=url)
    old = old_state(store, crawl, clock, tmp_path)
    time.ms += 10_000
    assert await old.restore_ended() == 0  # a new crawl of the same name
    await ask(store, "HSET", crawl.keys.meta, "created_ms", int(1000 * at_s) - 1_000)
    time.ms -= 10_000
    lease = await lease_one(frontier)
    await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "ok")])])
    time.ms += 10_000
    assert await old.restore_ended() == 1
    assert await old.restore_ended() == 0
    counts = await Counters(store, crawl.keys).counts()
    assert (counts.done, counts.open) == (2, 2)


async def test_a_snapshot_from_before_the_first_settlement_is_noticed(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """Redis makes one soon after `crawler seed`. What was settled before the crawl was created is of another one."""
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    clock = await crawl_clock(store, crawl)
    at_s = clock.now_ms() / 1000
    await ask(store, "HSET", crawl.keys.meta, "created_ms", int(1000 * at_s) - 60_000)
    write_line(tmp_path / f"{crawl_name}-r1-1.pages.jsonl", at_s - 30, url="https://a.test/lost")
    write_line(tmp_path / f"{crawl_name}-r1-2.pages.jsonl", at_s - 90, url="https://a.test/of-another-crawl")
    assert await old_state(store, crawl, clock, tmp_path).restore_ended() == 1


async def test_pages_that_are_restored_count_against_the_limit_and_others_are_kept(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    crawl = await create_crawl(store, crawl_name, 2, b"{}")
    clock = await crawl_clock(store, crawl)
    await ask(store, "HSET", crawl.keys.meta, "created_ms", clock.now_ms() - 60_000)
    # Given a snapshot of a crawl that had counted its pages,
    limit = PageLimit(1, 1)
    before = Budget(store, crawl.keys, clock, "r1", limit)
    await before.refresh(1, 1)
    assert before.available == 1
    await before.leave()
    # when all pages of the limit are restored, and what was denied before and after,
    at_s, blocked = clock.now_ms() / 1000 - 30, {"outcome": "denied", "reason": "blocked"}
    write_line(tmp_path / f"{crawl_name}-r1-1.pages.jsonl", at_s - 5, url="https://a.test/lost", **blocked)
    write_line(tmp_path / f"{crawl_name}-r1-2.pages.jsonl", at_s, url="https://a.test/lost")
    write_line(tmp_path / f"{crawl_name}-r1-3.pages.jsonl", at_s, url="https://a.test/blocked", **blocked)
    assert await old_state(store, crawl, clock, tmp_path).restore_ended() == 2
    # then the page of a URL counts, and a denied one can be queued again,
    counts = await Counters(store, crawl.keys).counts()
    assert (counts.done, counts.denied) == (1, 1)
    letters = [letter.url async for letter in DeadLetters(store, crawl.keys).find(None, None)]
    assert letters == ["https://a.test/blocked"]
    # and no replica may fetch another one.
    after = Budget(store, crawl.keys, clock, "r2", limit)
    await after.refresh(1, 1)
    assert after.available == 0
    await after.recount()
    assert after.is_exhausted


async def test_pages_that_were_being_settled_are_restored_and_links_on_pages_that_were_not_lost(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    """A line has a time from shortly before its settlement. The page of a link may be on another node."""
    crawl, clock, settled_s = await settled_page(store, crawl_name)
    old = old_state(store, crawl, clock, tmp_path)
    for number, after_s in enumerate((-0.2, 0.001)):
        url = f"https://a.test/{number}"
        write_line(tmp_path / f"{crawl_name}-r1-{number}.pages.jsonl", settled_s + after_s, url=url)
    await asyncio.sleep(0.01)
    assert await old.restore_ended() == 2
    with_link = {"domain": elsewhere(crawl), "links": ["https://a.test/link"], "link_count": 1}
    write_line(tmp_path / f"{crawl_name}-r1-3.pages.jsonl", settled_s, url=f"https://{elsewhere(crawl)}/", **with_link)
    assert await old.restore({crawl.keys.shard_of("a.test"): 0}, "r1") == 0
    assert (await Counters(store, crawl.keys).counts()).open == 1


async def test_a_replica_goes_on_between_the_pages_that_it_restores(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    crawl, clock, settled_s = await settled_page(store, crawl_name)
    turns, turns_of_pages = count(), list[int]()

    async def go_on() -> None:
        while True:
            next(turns)
            await asyncio.sleep(0)

    def score(url: str, depth: int, kind: LinkKind) -> float:
        turns_of_pages.append(next(turns))
        return 0.0

    # Given pages whose links are not in the shard that was lost,
    old = old_state(store, crawl, clock, tmp_path)
    old = replace(old, links=LinkFilter(old.links.scope, TrapPolicy(), score, RecentUrls(1)))
    link = {"domain": elsewhere(crawl), "links": [f"https://{elsewhere(crawl)}/link"], "link_count": 1}
    for number in range(3):
        url = f"https://{elsewhere(crawl)}/{number}"
        write_line(tmp_path / f"{crawl_name}-r1-{number}.pages.jsonl", settled_s, url=url, **link)
    # when it is restored, then other tasks have turns between any two of them.
    other = asyncio.create_task(go_on())
    await old.restore({crawl.keys.shard_of("a.test"): 0}, "r1")
    other.cancel()
    assert len(turns_of_pages) == 3
    assert all(later - earlier > 1 for earlier, later in pairwise(turns_of_pages))


@pytest.mark.parametrize("resharded", [False, True])
async def test_shards_whose_groups_are_committed_side_by_side_are_compared(
    store: RedisStore, crawl_name: str, tmp_path: Path, resharded: bool
) -> None:
    """A shard without a settlement has lost one from shortly before the last one of its node, unless a reshard made it."""
    crawl, clock, last_s = await settled_page(store, crawl_name)
    other = elsewhere(crawl)
    if resharded:
        await reshard_crawl(Reshard(store, crawl, (SystemClock(), clock), 4, 1), crawl, lambda *_: None)
        crawl = await open_crawl(store, crawl_name)
    for number, before_s in enumerate((GROUP_MS / 2000, GROUP_MS / 500)):
        url = f"https://{other}/{number}"
        write_line(tmp_path / f"{crawl_name}-r1-{number}.pages.jsonl", last_s - before_s, url=url, domain=other)
    assert await old_state(store, crawl, clock, tmp_path).restore_ended() == (0 if resharded else 1)
