"""A key of a domain that somebody else has written over costs this domain alone."""

from __future__ import annotations

import pytest

from frontier.counters import Counters, domain_delays, survey
from frontier.entries import Entry
from frontier.errors import WrongType
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.reservations import ReservationRefused, Reservations
from frontier.settle import Lease, LeasedUrl, SettledUrl, Settlement, retry
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, lease_one, make_frontier, settle_all

BROKEN, OTHERS = "b.test", ("a.test", "c.test", "d.test")
NAMES = ("d", "q", "inflight", "known", "visits")

pytestmark = pytest.mark.parametrize("name", NAMES)


def entries(domain: str, count: int = 3, first: int = 0, **more: object) -> list[Entry]:
    numbers = range(first, first + count)
    return [Entry(f"https://{domain}/{number}", domain, **more) for number in numbers]  # type: ignore[arg-type]


async def write_over(store: RedisStore, keys: CrawlKeys, name: str) -> None:
    await ask(store, "SET", f"{keys.shards[0].base}{name}:{BROKEN}", "x")


async def lease_all(frontier: Frontier) -> dict[str, Lease]:
    (reply,), fenced = await frontier.lease([0], 1, "r1", 10)
    assert not fenced
    return {lease.domain: lease for lease in reply.leases}


async def crawl_others(frontier: Frontier, time: ManualTime, count: int) -> None:
    """Every one of `count` URLs of each of the other domains is leased and settled exactly once."""
    settled = []
    for _ in range(3 * count):
        for lease in (await lease_all(frontier)).values():
            reply = (await frontier.settle([settle_all(lease)]))[0]
            if lease.domain != BROKEN:
                assert not reply.stale
                settled += [entry.url for entry in lease.entries]
        time.ms += 2_000
    assert sorted(settled) == sorted(entry.url for domain in OTHERS for entry in entries(domain, count))


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time, FrontierSettings(batch=1, known_share=0.5))


class TestOthersGoOn:
    async def test_when_it_is_queued(self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str) -> None:
        await frontier.push([entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain)])
        await write_over(store, frontier.keys, name)
        await crawl_others(frontier, time, 3)

    async def test_when_it_is_leased_with_others(
        self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str
    ) -> None:
        await frontier.push([entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain)])
        leases = await lease_all(frontier)
        assert set(leases) == {BROKEN, *OTHERS}
        await write_over(store, frontier.keys, name)
        replies = await frontier.settle([settle_all(lease) for lease in leases.values()])
        stale = {domain for domain, reply in zip(leases, replies, strict=True) if reply.stale}
        assert stale <= {BROKEN}
        lease = leases[BROKEN]
        await frontier.revoke([LeasedUrl(0, BROKEN, lease.token, entry) for entry in lease.entries])
        await frontier.release([Settlement(lease, time.ms)])
        for domain in OTHERS:
            assert (await ask(store, "HGET", frontier.keys.shards[0].domain(domain), "token")) is None
        (counts,) = await survey(store, frontier.keys, [0], time.ms, 8)
        assert int(counts.counters.stats[b"done"]) >= len(OTHERS)

    async def test_when_leases_expire(self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str) -> None:
        await frontier.push([entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain)])
        await lease_all(frontier)
        await write_over(store, frontier.keys, name)
        time.ms += 40_000
        await crawl_others(frontier, time, 3)

    async def test_when_urls_wait_for_a_retry(
        self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str
    ) -> None:
        await frontier.push(
            [entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain, 1)]
        )
        for lease in (await lease_all(frontier)).values():
            again = [retry(entry, "timeout", time.ms + 1_000, 0.0) for entry in lease.entries]
            await frontier.settle([Settlement(lease, 0, urls=again)])
        await write_over(store, frontier.keys, name)
        time.ms += 5_000
        await crawl_others(frontier, time, 1)

    async def test_when_urls_are_pushed(
        self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str
    ) -> None:
        await frontier.push(entries(BROKEN))
        await write_over(store, frontier.keys, name)
        for mode in ("new", "foreign", "known", "again", "moved"):
            await frontier.push([*entries(BROKEN, mode=mode), *entries(BROKEN, 3, 10, mode=mode)])
        await frontier.push(
            [entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain, 2, priority=1.0)]
        )
        await crawl_others(frontier, time, 2)

    async def test_when_a_reply_was_lost(
        self, store: RedisStore, frontier: Frontier, crawl_name: str, time: ManualTime, name: str
    ) -> None:
        await frontier.push(
            [entry for domain in ("a.test", BROKEN, "c.test", "d.test") for entry in entries(domain, 1)]
        )
        same_replica = await make_frontier(store, crawl_name, time, frontier.settings)
        await lease_all(same_replica)
        await write_over(store, frontier.keys, name)
        leases = await lease_all(frontier)
        assert set(OTHERS) <= set(leases)

    async def test_when_a_request_to_it_is_reserved(
        self, store: RedisStore, frontier: Frontier, time: ManualTime, name: str
    ) -> None:
        await frontier.push(entries(BROKEN))
        await write_over(store, frontier.keys, name)
        answer = await Reservations(store, frontier.keys, frontier._clock, 1_000, 1_000).reserve(BROKEN, 5_000)
        assert name != "d" or isinstance(answer, ReservationRefused)


async def test_the_key_is_named_and_the_crawl_is_not_taken_for_ended(
    store: RedisStore, frontier: Frontier, counters: Counters, time: ManualTime, name: str
) -> None:
    if name == "inflight":
        pytest.skip("the next lease replaces it")
    await frontier.push(entries(BROKEN))
    lease = await lease_one(frontier)
    await write_over(store, frontier.keys, name)
    visits = [SettledUrl(entry, "done", "200", f"visit\nnew\n{10**9}\nx") for entry in lease.entries]
    await frontier.settle([Settlement(lease, 0, urls=visits)])
    time.ms += 40_000
    await lease_all(frontier)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 8)
    if name in ("d", "q", "known"):
        assert found.wrong_types == (f"{name}:{BROKEN}",)
        assert not await counters.has_ended()


async def test_a_survey_can_be_taken_before_anybody_notices(
    store: RedisStore, frontier: Frontier, time: ManualTime, name: str
) -> None:
    await frontier.push([*entries("a.test"), *entries(BROKEN)])
    await write_over(store, frontier.keys, name)
    (found,) = await survey(store, frontier.keys, [0], time.ms, 8)
    assert {sample.domain for sample in found.domains} == {"a.test", BROKEN}
    assert set(await domain_delays(store, frontier.keys, found.domains)) == {"a.test", BROKEN}


async def test_a_command_that_cannot_go_on_says_what_to_do(store: RedisStore, frontier: Frontier, name: str) -> None:
    await write_over(store, frontier.keys, name)
    with pytest.raises(WrongType, match=r"repair --evicted"):
        await ask(store, "LPUSH", f"{frontier.keys.shards[0].base}{name}:{BROKEN}", "x")
