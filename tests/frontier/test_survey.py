"""The survey returns the counters of a shard atomically, and lists some of its domains."""

from __future__ import annotations

from frontier.counters import SHARDS_A_PART, Counters, counts_of
from frontier.queue import SettledUrl, Settlement
from frontier.store import RedisStore
from frontier.survey import DomainDelay, domain_delays, survey
from tests.frontier.helpers import ManualTime, entry, make_frontier


async def test_an_untouched_shard_is_empty_and_has_no_owner(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 3)
    assert (found.ready, found.oldest_due_ms, found.owner, found.domains) == (0, None, None, ())
    assert found.counters.open == 0


async def test_it_agrees_with_the_counters(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://{name}.test/{n}", f"{name}.test") for name in "abc" for n in range(4)])
    leased, _ = await frontier.lease([0], 3, "r1", 1)
    lease = leased[0].leases[0]
    await frontier.settle([Settlement(lease, time.ms, 500, "", [SettledUrl(lease.entries[0], "dead", "x")])])
    (found,) = await survey(store, frontier.keys, [0], time.ms + 50, 1)
    assert counts_of([found.counters]) == await Counters(store, frontier.keys).counts()
    assert (found.ready, found.oldest_due_ms) == (2, time.ms)
    assert found.owner is not None
    assert (found.owner.replica, found.owner.epoch) == ("r1", 3)


async def test_it_says_how_the_domains_it_named_rest(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://{name}.test/{n}", f"{name}.test") for name in "ab" for n in range(2)])
    leased, _ = await frontier.lease([0], 1, "r1", 1)
    (lease,) = leased[0].leases
    await frontier.settle([Settlement(lease, time.ms, 1500, "3 of it")])
    (found,) = await survey(store, frontier.keys, [0], time.ms, 9)
    (other,) = {"a.test", "b.test"} - {lease.domain}
    assert await domain_delays(store, frontier.keys, found.domains) == {
        lease.domain: DomainDelay(1500, "3 of it"),
        other: DomainDelay(None, ""),
    }
    assert await domain_delays(store, frontier.keys, []) == {}


async def test_domains_are_named_from_both_ends_and_once_each(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    for name in "abcdef":
        await frontier.push([entry(f"https://{name}.test/", f"{name}.test")])
        time.ms += 1000
    leased, _ = await frontier.lease([0], 1, "r1", 1)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 1)
    named = {sample.domain: sample.held for sample in found.domains}
    assert named == {"b.test": "due", "f.test": "due", "a.test": "leased"}
    (all_of_them,) = await survey(store, frontier.keys, [0], time.ms, 99)
    assert len(all_of_them.domains) == 6
    assert leased[0].leases[0].domain == "a.test"
    assert sum(sample.queued for sample in all_of_them.domains) == 5


async def test_many_shards_are_read_in_parts(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time, shards=2 * SHARDS_A_PART + 1)
    before = store.round_trips
    surveys = await survey(store, frontier.keys, range(2 * SHARDS_A_PART + 1), time.ms, 1)
    assert [found.shard for found in surveys] == list(range(2 * SHARDS_A_PART + 1))
    assert store.round_trips - before in (3, 4, 5)  # up to two more where the server has to be told the script
