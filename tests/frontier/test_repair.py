"""A repair restores the known pages of a lost shard as they were, and what was settled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.crawls import Crawl, create_crawl, recreate_crawl
from frontier.domains import forgotten_mark
from frontier.entries import Entry, tag_of
from frontier.errors import BadInput, CrawlLost, ShardLost
from frontier.known_pages import KnownPage, pages_in
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import PAGES, Ended, Repair
from frontier.scripts import command
from frontier.shards import lost_shards
from frontier.store import RedisStore
from tests.frontier.crawled import Crawled, meta
from tests.frontier.helpers import ManualTime, ask, lease_one

DOMAIN = "a.test"
DUE_S = 2_000_000
EARLY, LATE = ("d6425f0c7b6c0001" + end for end in ("1f", "01f4"))
"""States of visits: at one time, and at the same."""

LATER = "d6425f0c7b6c1001"
"""That of a visit some milliseconds later."""


def known(number: int, state: str = EARLY, due_s: int = DUE_S) -> KnownPage:
    return KnownPage(due_s, Entry(f"https://a.test/{number}", DOMAIN, -3.0, depth=1, visit=state))


@pytest.fixture
async def crawl(store: RedisStore, crawl_name: str) -> Crawl:
    """A crawl of one shard, which has lost it."""
    made = await create_crawl(store, crawl_name, 1, b"{}")
    await lose(store, made)
    return made


async def lose(store: RedisStore, crawl: Crawl) -> None:
    ((_, keys),) = await store.send([command("SCAN", 0, "MATCH", f"{crawl.keys.shards[0].base}*", "COUNT", 10**6)])
    await store.send([command("DEL", key) for key in keys])


Begin = Callable[..., Awaitable[Repair]]


@pytest.fixture
def begin(store: RedisStore, crawl: Crawl, time: ManualTime) -> Begin:
    async def begun(domain_cap: int = 0, forgotten: frozenset[str] = frozenset()) -> Repair:
        repair = Repair(store, crawl, await clock_of(time), domain_cap)
        await repair.begin(forgotten)
        return repair

    return begun


async def clock_of(time: ManualTime) -> ServerClock:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    return clock


async def whole(repair: Repair, *pages: KnownPage) -> int:
    """Restore `pages`, and what it takes that they were settled. Returns how many were stored."""
    await repair.restore([Ended(page.entry, "done", "200") for page in pages])
    return await repair.restore_visits(pages)


async def stored(store: RedisStore, crawl: Crawl) -> list[KnownPage]:
    buckets = await ask(store, "HVALS", crawl.keys.shards[0].known(DOMAIN))
    return sorted((page for records in buckets for page in pages_in(records, DOMAIN)), key=lambda page: page.entry.url)


async def test_pages_come_back_as_they_were_and_are_visited_when_they_are_due(
    store: RedisStore, crawl: Crawl, begin: Begin, time: ManualTime
) -> None:
    odd = [
        Entry("https://www.a.test/x", DOMAIN, -2.5, depth=255, hops=15, via="https://b.test/,%20?a=b", visit=EARLY),
        Entry("https://sub.a.test:8443/x?y", DOMAIN, 0.0, depth=16, visit=LATE),
        Entry("https://a.test/tag", DOMAIN, -1.0, tag=tag_of("p", {"a, b": "x"}), visit=LATER),
    ]
    pages = [KnownPage(DUE_S + number, entry) for number, entry in enumerate(odd)]
    repair = await begin()
    assert await whole(repair, *pages) == 3
    assert await stored(store, crawl) == sorted(pages, key=lambda page: page.entry.url)
    await repair.finish()

    counters = Counters(store, crawl.keys)
    counts = await counters.counts()
    assert (counts.accepted, counts.done, counts.known, counts.open) == (3, 3, 3, 0)
    assert await counters.has_ended()
    settings = FrontierSettings(known_share=0.5, delay_ms=0)
    frontier = Frontier(store, crawl.keys, await clock_of(time), settings, crawl.fingerprint_key)
    (reply,), _ = await frontier.lease([0], 1, "r1", 1)
    assert (reply.leases, reply.visit_ms) == ((), DUE_S * 1000)
    time.ms = (DUE_S + 9) * 1000
    assert {(one.url, one.visit) for one in (await lease_one(frontier)).entries} == {
        (one.url, one.visit) for one in odd
    }
    counts = await counters.counts()
    assert (counts.accepted, counts.later_visits, counts.done, counts.known, counts.open) == (6, 3, 3, 0, 3)


async def test_a_settled_page_with_a_label_is_not_queued_for_it_again(crawl: Crawl, begin: Begin) -> None:
    labelled, plain = (Entry(f"https://a.test/{tag or 'plain'}", DOMAIN, tag=tag) for tag in ("label", ""))
    repair = await begin()
    assert await repair.restore([Ended(one, "done", "200") for one in (labelled, plain)]) == 2
    assert await repair.push([labelled, plain]) == 0
    assert await repair.push([Entry(plain.url, DOMAIN, tag="label")]) == 1


async def test_a_repeated_call_changes_nothing(store: RedisStore, crawl: Crawl, begin: Begin) -> None:
    """Nor does a whole repair that was interrupted, or one that another process makes at the same time."""
    pages = [known(number) for number in range(5 * PAGES)]
    await whole(await begin(), *pages[: 2 * PAGES])
    repair = await begin()
    assert await whole(repair, *pages) == 3 * PAGES
    before = await stored(store, crawl)
    assert await whole(await begin(), *pages) == 0
    assert before == await stored(store, crawl) == sorted(pages, key=lambda page: page.entry.url)
    await repair.finish()
    counts = await Counters(store, crawl.keys).counts()
    assert (counts.known, counts.accepted, counts.done) == (5 * PAGES, 5 * PAGES, 5 * PAGES)


async def test_a_later_visit_counts(store: RedisStore, crawl: Crawl, begin: Begin) -> None:
    repair = await begin()
    first, later, same = known(1), known(1, LATER, DUE_S - 60), known(1, LATE, DUE_S + 60)
    await whole(repair, first)
    assert [await repair.restore_visits([page]) for page in (same, later, first)] == [0, 1, 0]
    assert await stored(store, crawl) == [later]
    assert await ask(store, "HGET", crawl.keys.shards[0].stats, "known") == b"1"
    assert await ask(store, "ZSCORE", crawl.keys.shards[0].revisits, DOMAIN) == b"%d" % ((DUE_S - 60) * 1000)


async def test_a_call_that_arrives_after_the_repair_changes_nothing(
    store: RedisStore, crawl: Crawl, begin: Begin
) -> None:
    repair = await begin()
    await whole(repair, known(1))
    await repair.finish()
    with pytest.raises(ShardLost):
        await repair.restore_visits([known(1, LATER), known(2)])
    assert await stored(store, crawl) == [known(1)]


async def test_a_domain_that_was_forgotten_stays_away(store: RedisStore, crawl: Crawl, begin: Begin) -> None:
    repair = await begin(forgotten=frozenset({forgotten_mark(DOMAIN)}))
    assert await whole(repair, known(1)) == 0
    assert await stored(store, crawl) == []


async def test_what_was_settled_under_a_higher_cap_comes_back(store: RedisStore, crawl: Crawl, begin: Begin) -> None:
    """Otherwise, a link to such a page could queue it while it is known."""
    repair = await begin(domain_cap=2)
    assert await whole(repair, *map(known, range(5))) == 5
    assert await repair.push([known(number).entry for number in range(9)]) == 0
    await repair.finish()
    counts = await Counters(store, crawl.keys).counts()
    assert (counts.accepted, counts.done, counts.known) == (5, 5, 5)


@pytest.mark.parametrize("resharded_to", [0, 16])
async def test_a_crawl_that_has_lost_its_control_keys_gets_the_identity_of_its_shards(
    crawled: Crawled, store: RedisStore, resharded_to: int
) -> None:
    """On a cluster, these keys are on one node, and the shards of the others survive."""
    shards = len((await meta(crawled)).keys.shards)
    if resharded_to:
        await crawled.reshard(resharded_to)
        shards = resharded_to
    before, (left, *lost) = await meta(crawled), range(shards)
    control = await ask(store, "KEYS", f"{{{crawled.name}}}:*")
    await store.send([command("DEL", key) for key in control])
    await store.send([command("DEL", before.keys.shards[shard].stats) for shard in lost])
    again = await recreate_crawl(store, crawled.name, shards, b"{}")
    assert again.keys.identity == before.keys.identity
    repair = Repair(store, again, crawled.clock, 0)
    assert await repair.begin() == lost
    await repair.finish()
    assert await lost_shards(store, again.keys) == {}
    assert left not in repair.shards


async def test_nothing_is_written_for_a_crawl_that_had_more_shards(crawled: Crawled, store: RedisStore) -> None:
    await crawled.reshard(16)
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{{{crawled.name}}}:*")])
    with pytest.raises(BadInput, match="had at least 16 shards, not 4"):
        await recreate_crawl(store, crawled.name, 4, b"{}")
    assert await ask(store, "KEYS", f"{{{crawled.name}}}:*") == []


async def test_nothing_is_written_over_the_shards_of_two_crawls(crawled: Crawled, store: RedisStore) -> None:
    keys = (await meta(crawled)).keys
    await store.send([command("HSET", keys.shards[1].stats, "crawl", "another")])
    await store.send([command("DEL", key) for key in await ask(store, "KEYS", f"{{{crawled.name}}}:*")])
    with pytest.raises(CrawlLost, match="shards of several crawls"):
        await recreate_crawl(store, crawled.name, len(keys.shards), b"{}")
    assert await ask(store, "KEYS", f"{{{crawled.name}}}:*") == []
