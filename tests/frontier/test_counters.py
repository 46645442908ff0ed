"""The counters of all shards show the end of a crawl, whichever shard is emptied last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from frontier.counters import SHARDS_A_PART, Counters, DomainDelay, counts_of, domain_delays, survey
from frontier.queue import Frontier
from frontier.scripts import Call, Reply
from frontier.settle import SettledUrl, Settlement, postpone
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, ask, entry, lease_one, make_frontier, settle_all

DOMAINS = ("a.test", "b.test", "c.test")


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    frontier = await make_frontier(store, crawl_name, time, shards=64)
    assert len({frontier.shard_of(domain) for domain in DOMAINS}) == 3
    return frontier


class Interrupted(CountingStore):
    """Sends one call at a time, and runs `meanwhile` once after call number `after`."""

    def __init__(self, store: RedisStore, after: int, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._after = after
        self._meanwhile = meanwhile

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies: list[Reply] = []
        for call in calls:
            replies += await super().send([call])
            if self.calls.total() == self._after:
                await self._meanwhile()
        return replies


async def settle(frontier: Frontier, domain: str) -> None:
    await frontier.settle([settle_all(await lease_one(frontier, shard=frontier.shard_of(domain)))])


@pytest.mark.parametrize("order", [DOMAINS, DOMAINS[::-1], ("b.test", "a.test", "c.test")])
async def test_a_crawl_ends_with_the_last_of_its_shards(
    store: RedisStore, frontier: Frontier, order: tuple[str, ...]
) -> None:
    counters = Counters(store, frontier.keys)
    assert await counters.has_ended()
    await frontier.push([entry(f"https://{domain}/", domain) for domain in DOMAINS])
    for domain in order:
        assert not await counters.has_ended()
        await settle(frontier, domain)
    assert await counters.has_ended()


async def test_while_a_shard_is_known_to_be_open_no_other_is_asked(store: RedisStore, frontier: Frontier) -> None:
    counting = CountingStore(store)
    counters = Counters(counting, frontier.keys)
    await frontier.push([entry("https://a.test/", "a.test")])
    assert not await counters.has_ended()
    asked = counting.calls.total()
    for more in (1, 2):
        assert not await counters.has_ended()
        assert counting.calls.total() == asked + more


async def test_when_that_shard_is_empty_the_search_goes_on_after_it(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """So replicas that wait near the end of a crawl read each shard about once, and in its middle only a few."""
    frontier = await make_frontier(store, crawl_name, time, shards=512)
    by_shard = {frontier.shard_of(f"{number}.test"): f"{number}.test" for number in range(4_000)}
    first, second = by_shard[300], by_shard[310]
    await frontier.push([entry(f"https://{domain}/", domain) for domain in (first, second)])
    counting = CountingStore(store)
    counters = Counters(counting, frontier.keys)
    assert not await counters.has_ended()
    counting.calls.clear()
    await settle(frontier, first)
    assert not await counters.has_ended()
    assert counting.calls.total() == 1 + 8 + 16
    await settle(frontier, second)
    assert await counters.has_ended()


async def test_a_page_that_is_settled_during_a_reading_does_not_hide_its_links(
    store: RedisStore, frontier: Frontier
) -> None:
    """Given one open URL, when its page is settled after the shard of its link was read and before its own is, then the
    crawl has not ended, although no shard had an open URL when it was read."""
    link, page = sorted(DOMAINS, key=frontier.shard_of)[:2]
    await frontier.push([entry(f"https://{page}/", page)])

    async def commit() -> None:
        await frontier.push([entry(f"https://{link}/", link)])
        await settle(frontier, page)

    interrupted = Interrupted(store, frontier.shard_of(link) + 1, commit)
    assert not await Counters(interrupted, frontier.keys).has_ended()
    assert interrupted.calls.total() == 2 * 64


# The survey returns the counters of a shard atomically, and lists some of its domains.


async def test_an_untouched_shard_is_empty_and_has_no_owner(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 3)
    assert (found.ready, found.oldest_due_ms, found.last_holder, found.domains) == (0, None, None, ())
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
    assert found.last_holder is not None
    assert (found.last_holder.replica, found.last_holder.epoch) == ("r1", 3)


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


async def test_domains_whose_urls_all_wait_are_named(store: RedisStore, crawl_name: str) -> None:
    """Of others, the queue says when they are due."""
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://{name}.test/{n}", f"{name}.test") for name in "ab" for n in range(3)])
    leased, _ = await frontier.lease([0], 1, "r1", 2)
    for lease in leased[0].leases:
        waits = lease.entries[: 3 if lease.domain == "a.test" else 1]
        later = [postpone(one, "robots_unreachable", time.ms + 9_000) for one in waits]
        await frontier.settle([Settlement(lease, time.ms, urls=later)])
        await frontier.release([Settlement(lease, time.ms)])
    for name in "ab":
        await ask(store, "HSET", frontier.keys.shards[0].robots(f"{name}.test"), f"https://{name}.test", name)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 9)
    assert [(one.domain, one.held, one.at_ms - time.ms, one.queued) for one in found.domains] == [
        ("b.test", "due", 0, 2),
        ("a.test", "waiting", 9_000, 3),
    ]
    delays = await domain_delays(store, frontier.keys, found.domains)
    assert (delays["a.test"].robots, delays["b.test"].robots) == ({b"https://a.test": b"a"}, {b"https://b.test": b"b"})


async def test_the_listed_waiting_domains_are_limited(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://{n}.test/{u}", f"{n}.test") for n in range(40) for u in range(2)])
    leased, _ = await frontier.lease([0], 1, "r1", 99)
    for lease in leased[0].leases:
        at_ms = time.ms + 1_000 * int(lease.domain.partition(".")[0])
        later = [postpone(one, "robots_unreachable", at_ms) for one in lease.entries]
        await frontier.settle([Settlement(lease, time.ms, urls=later)])
    (found,) = await survey(store, frontier.keys, [0], time.ms, 2)
    named = [one.domain for one in found.domains]
    assert (len(named), named[:2]) == (4, ["0.test", "1.test"])
    assert all(int(name.partition(".")[0]) > 30 for name in named[2:])
    (found,) = await survey(store, frontier.keys, [0], time.ms, 40)
    assert sorted((one.domain, one.queued) for one in found.domains) == sorted((f"{n}.test", 2) for n in range(40))


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


async def test_what_follows_from_an_empty_set_is_not_read(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await survey(store, frontier.keys, [0], time.ms, 1)  # the server knows the script

    async def commands() -> int:
        return int((await store.info("stats"))["total_commands_processed"])

    before = await commands()
    await survey(store, frontier.keys, [0], time.ms, 1)
    of_script = await commands() - before - 2  # INFO, EVALSHA
    assert of_script == 3  # whether there is a domain or a waiting URL, the counters, the owner


async def test_texts_that_somebody_wrote_into_counters_count_as_nothing(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    await frontier.push([entry("https://a.test/", "a.test")])
    odd = {
        "denied": "x",
        "dead:[/red]": "7",
        "cut:\x1b[31m": "9" * 400,
        "items:a": "nan",
        "last_ms": "",
        "outboxed": "1e9",
    }
    await ask(store, "HSET", frontier.keys.shards[0].stats, *(word for pair in odd.items() for word in pair))
    await ask(store, "HSET", frontier.keys.shards[0].stats, b"rejected:\xff", "0x10")
    counters = Counters(store, frontier.keys)
    counts = await counters.counts()
    assert (counts.accepted, counts.denied, counts.open) == (1, 0, 1)
    assert await counters.open() == [1]
    (found,) = await survey(store, frontier.keys, [0], 0, 1)
    assert found.counters.open == 1
