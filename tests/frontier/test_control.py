"""An operator's commands reach every replica that polls."""

from __future__ import annotations

import pytest

from frontier.control import Control, DomainRules, RetryReply, retry_now
from frontier.counters import Counters
from frontier.crawls import create_crawl, save_settings
from frontier.keys import CrawlKeys
from frontier.queue import Frontier
from frontier.reservations import Reservation, Reservations
from frontier.scripts import RETRY_NOW, script_call
from frontier.settle import Lease, Settlement, postpone, retry
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, lease_one, make_frontier, settle_all


@pytest.fixture
def both(store: RedisStore, crawl_name: str) -> tuple[Control, Control]:
    """The control of the operator, and that of a replica."""
    keys = CrawlKeys(crawl_name, 1)
    return Control(store, keys), Control(store, keys)


async def test_a_crawl_that_nobody_spoke_to_runs(both: tuple[Control, Control]) -> None:
    _, seen = both
    await seen.refresh()
    assert (seen.paused, seen.stopped, seen.rules) == (False, False, DomainRules())


async def test_pause_and_resume(both: tuple[Control, Control]) -> None:
    said, seen = both
    await said.set("pause")
    await seen.refresh()
    assert seen.paused
    await said.set("run")
    await seen.refresh()
    assert not seen.paused


async def test_rules_come_and_go(both: tuple[Control, Control]) -> None:
    said, seen = both
    await said.block("a.test")
    await said.set_delay("b.test", 2.5)
    await said.set_delay("a.test", 0)
    await seen.refresh()
    assert seen.rules == DomainRules(frozenset({"a.test"}), {"b.test": 2.5, "a.test": 0.0})
    await said.unblock("a.test")
    await said.set_delay("b.test", None)
    await seen.refresh()
    assert seen.rules == DomainRules(frozenset(), {"a.test": 0.0})


async def test_a_look_tells_that_more_was_seeded(both: tuple[Control, Control]) -> None:
    said, seen = both
    await seen.refresh()
    assert seen.seedings == 0
    await said.seeded()
    await said.seeded()
    await said.set("pause")
    await seen.refresh()
    assert (seen.seedings, seen.paused) == (2, True)


async def test_a_look_brings_the_revision_of_the_settings(
    both: tuple[Control, Control], store: RedisStore, crawl_name: str
) -> None:
    _, seen = both
    crawl = await create_crawl(store, crawl_name, 1, b"{}")
    await seen.refresh()
    assert seen.settings_revision == 1
    await save_settings(store, crawl, b'{"a": 1}')
    await seen.refresh()
    assert seen.settings_revision == 2


async def test_a_look_without_news_is_one_small_read(both: tuple[Control, Control], store: RedisStore) -> None:
    said, seen = both
    await said.block("a.test")
    await seen.refresh()
    before = store.round_trips
    await seen.refresh()
    assert store.round_trips == before + 1


# A domain whose site works again is requested at once, and not before its delay.


HOUR_MS, DELAY_MS = 3_600_000, 2_000


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    """With two URLs of one domain, and one of another."""
    made = await make_frontier(store, crawl_name, time)
    await made.push([entry("https://a.test/1"), entry("https://a.test/2"), entry("https://b.test/", "b.test")])
    return made


async def fail(frontier: Frontier, time: ManualTime) -> Lease:
    """Both URLs of a.test fail: one is tried again in an hour, the other is returned, and the domain backs off for an
    hour. Its last response has just ended."""
    leased, _ = await frontier.lease([0], 1, "r1", 9)
    leases = {lease.domain: lease for lease in leased[0].leases}
    lease, until_ms = leases["a.test"], time.ms + HOUR_MS
    failed = retry(lease.entries[0], "timeout", until_ms, -1.0)
    await frontier.settle([Settlement(lease, until_ms, DELAY_MS, f"1 {until_ms} 0 timeout", [failed])])
    await frontier.release([Settlement(lease, until_ms)])
    await frontier.settle([settle_all(leases["b.test"])])
    return lease


async def retried(store: RedisStore, frontier: Frontier, time: ManualTime, domain: str = "a.test") -> RetryReply:
    return await retry_now(store, frontier.keys, domain, time.ms, 1_000)


async def leased_urls(frontier: Frontier) -> set[str]:
    leased, _ = await frontier.lease([0], 1, "r1", 9)
    return {one.url for lease in leased[0].leases for one in lease.entries}


async def test_a_domain_in_backoff_is_due_after_its_delay(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    await fail(frontier, time)
    assert await retried(store, frontier, time) == RetryReply(ready=1, queued=1, is_held=False)
    time.ms += DELAY_MS - 1
    assert await leased_urls(frontier) == set()
    time.ms += 1
    assert await leased_urls(frontier) == {"https://a.test/1", "https://a.test/2"}
    assert await ask(store, "HGET", frontier.keys.shards[0].domain("a.test"), "state") is None


async def test_a_second_call_changes_nothing(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    await fail(frontier, time)
    await retried(store, frontier, time)
    time.ms += DELAY_MS - 1
    await retried(store, frontier, time)
    assert await leased_urls(frontier) == set()
    time.ms += 1
    assert len(await leased_urls(frontier)) == 2


async def test_no_url_is_lost_or_counted_twice(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    counters = Counters(store, frontier.keys)
    await fail(frontier, time)
    assert (await counters.counts()).open == 2
    await retried(store, frontier, time)
    time.ms += DELAY_MS
    leased, _ = await frontier.lease([0], 1, "r1", 9)
    await frontier.settle([settle_all(leased[0].leases[0])])
    assert await counters.has_ended()


async def test_only_the_domain_is_retried(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    """A domain whose name is a pattern matches no other."""
    await fail(frontier, time)
    for other in ("b.test", "test", "*", "[a-z].test"):
        assert (await retried(store, frontier, time, other)).ready == 0
    time.ms += DELAY_MS
    assert await leased_urls(frontier) == set()


async def test_a_url_that_waits_for_a_robots_txt_is_ready_at_once(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    lease = await lease_one(frontier)
    waiting = [postpone(one, "robots_unreachable", time.ms + HOUR_MS) for one in lease.entries]
    await frontier.settle([Settlement(lease, time.ms, urls=waiting)])
    assert (await retried(store, frontier, time, lease.domain)).ready == len(waiting)
    assert {one.url for one in lease.entries} <= await leased_urls(frontier)


async def test_the_holder_of_a_lease_keeps_it(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    """What it reports later decides when the domain is due."""
    leased, _ = await frontier.lease([0], 1, "r1", 9)
    lease = next(lease for lease in leased[0].leases if lease.domain == "a.test")
    assert (await retried(store, frontier, time)).is_held
    assert await leased_urls(frontier) == set()
    (reply,) = await frontier.release([Settlement(lease, time.ms + HOUR_MS)])
    assert reply.due_ms == time.ms + HOUR_MS


async def test_a_reserved_domain_stays_reserved(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    """Another domain's robots.txt is being fetched from it."""
    reservations = Reservations(store, frontier.keys, frontier._clock, hold_ms=9_000, delay_ms=1_000)
    assert isinstance(await reservations.reserve("a.test", 0), Reservation)
    assert (await retried(store, frontier, time)).is_held
    time.ms += 1_000
    assert not any("a.test" in url for url in await leased_urls(frontier))


async def test_a_domain_that_may_be_requested_earlier_is_not_put_off(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    assert await retried(store, frontier, time) == RetryReply(ready=0, queued=2, is_held=False)
    assert len(await leased_urls(frontier)) == 3


async def test_an_unknown_domain_leaves_no_trace(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    assert await retried(store, frontier, time, "new.test") == RetryReply(ready=0, queued=0, is_held=False)
    assert not await ask(store, "EXISTS", frontier.keys.shards[0].domain("new.test"))


async def test_a_url_that_waits_no_longer_is_not_queued_again(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    """It was leased, or has become ready, after the waiting URLs were read."""
    await fail(frontier, time)
    keys = frontier.keys.shards[0]
    names = (keys.due, keys.leases, keys.waiting, keys.domain("a.test"))
    (member,) = await ask(store, "ZRANGE", keys.waiting, 0, -1)
    await ask(store, "ZADD", keys.waiting, time.ms - 5, member)
    for gone in (b"a.test\n0\n000000 /gone", member):
        (reply,) = await store.send([script_call(RETRY_NOW, names, "a.test", time.ms, DELAY_MS, gone)])
        assert reply == [b"ready", 0]
    assert await ask(store, "ZRANGE", keys.waiting, 0, -1) == [member]
    assert int(await ask(store, "ZSCORE", keys.waiting, member)) == time.ms - 5
