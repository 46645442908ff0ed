"""Dead letters can be listed and queued again, and the counters stay correct."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.dead_letters import DeadLetter, DeadLetters
from frontier.queue import Frontier
from frontier.settle import KEEP, SettledUrl, Settlement
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, make_frontier


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time, shards=4)


async def bury(frontier: Frontier, time: ManualTime, *urls: tuple[str, str], reason: str = "timeout") -> None:
    """Push and settle as dead: (url, domain)."""
    await frontier.push([entry(url, domain) for url, domain in urls])
    leased, _ = await frontier.lease(range(4), 1, "r1", 9)
    for lease in (lease for answer in leased for lease in answer.leases):
        buried = [SettledUrl(one, "dead", reason) for one in lease.entries]
        await frontier.settle([Settlement(lease, time.ms, None, "7 99 0 timeout", buried)])


async def found(letters: DeadLetters, **filters: str) -> list[DeadLetter]:
    return [letter async for letter in letters.find(**filters)]


async def test_letters_are_found_by_domain_and_by_reason(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    letters = DeadLetters(store, frontier.keys)
    await bury(frontier, time, ("https://a.test/1", "a.test"), ("https://b.test/1", "b.test"))
    await bury(frontier, time, ("https://a.test/2", "a.test"), reason="http_500")
    assert {letter.url for letter in await found(letters)} == {
        f"https://{u}" for u in ("a.test/1", "b.test/1", "a.test/2")
    }
    assert {letter.url for letter in await found(letters, domain="a.test")} == {"https://a.test/1", "https://a.test/2"}
    assert [letter.url for letter in await found(letters, reason="http_500")] == ["https://a.test/2"]


async def test_a_requeued_letter_is_open_again_and_fetched_with_fresh_tries(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    letters, counters = DeadLetters(store, frontier.keys), Counters(store, frontier.keys)
    await bury(frontier, time, ("https://a.test/1", "a.test"))
    (letter,) = await found(letters)
    assert await counters.has_ended()

    worn = DeadLetter(letter.shard, letter.domain, letter.entry[:3] + "3" + letter.entry[4:], letter.reason)
    key = frontier.keys.shards[letter.shard].dead
    await ask(store, "HDEL", key, f"{letter.domain}\n{letter.entry}")
    await ask(store, "HSET", key, f"{worn.domain}\n{worn.entry}", "timeout")

    assert await letters.requeue([worn], time.ms) == 1
    counts = await counters.counts()
    assert (counts.accepted, counts.dead, counts.open) == (1, 0, 1)
    assert (counts.requeued, counts.reasons) == ({"denied": 0, "dead": 1, "requisite": 0}, {})
    assert not await counters.has_ended()
    assert await found(letters) == []

    leased, _ = await frontier.lease([letter.shard], 1, "r1", 9)
    (lease,) = leased[0].leases
    assert (lease.entries[0].url, lease.entries[0].tries, lease.state) == ("https://a.test/1", 0, "")
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "done", "200")])])
    assert await counters.has_ended()
    ended = await counters.counts()
    assert (ended.accepted, ended.done, ended.dead, ended.reasons) == (1, 1, 0, {"done:200": 1})


async def test_requeueing_twice_counts_once(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    letters = DeadLetters(store, frontier.keys)
    await bury(frontier, time, ("https://a.test/1", "a.test"))
    (letter,) = await found(letters)
    assert await letters.requeue([letter], time.ms) == 1
    assert await letters.requeue([letter], time.ms) == 0
    assert (await Counters(store, frontier.keys).counts()).open == 1


async def test_a_url_with_two_letters_is_queued_once(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    """It was given up after one try, seeded again, and given up after three. The crawl ends when it is settled."""
    letters, counters = DeadLetters(store, frontier.keys), Counters(store, frontier.keys)
    url = ("https://a.test/1", "a.test")
    await bury(frontier, time, url)
    await frontier.push([entry(*url, tries=2, mode="again")])
    (lease,) = [lease for answer in (await frontier.lease(range(4), 1, "r1", 9))[0] for lease in answer.leases]
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "dead", "timeout")])])
    assert await letters.requeue(await found(letters), time.ms) == 2
    counts = await counters.counts()
    assert (counts.accepted, counts.dead, counts.open) == (1, 0, 1)
    (lease,) = [lease for answer in (await frontier.lease(range(4), 1, "r1", 9))[0] for lease in answer.leases]
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "done", "200")])])
    assert await counters.has_ended()


async def test_a_letter_of_a_url_that_is_leased_is_not_queued(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    """Given a dead URL that was seeded again and leased, then its return does not merge with a queued copy."""
    letters, counters = DeadLetters(store, frontier.keys), Counters(store, frontier.keys)
    url = ("https://a.test/1", "a.test")
    await bury(frontier, time, url)
    await frontier.push([entry(*url, mode="again")])
    (lease,) = [lease for answer in (await frontier.lease(range(4), 1, "r1", 9))[0] for lease in answer.leases]
    assert await letters.requeue(await found(letters), time.ms) == 1
    await frontier.release([Settlement(lease, time.ms)])
    assert (await counters.counts()).open == 1
    (lease,) = [lease for answer in (await frontier.lease(range(4), 1, "r1", 9))[0] for lease in answer.leases]
    await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "done", "200")])])
    assert await counters.has_ended()


async def test_a_domain_under_lease_keeps_its_holder(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    letters = DeadLetters(store, frontier.keys)
    await bury(frontier, time, ("https://a.test/1", "a.test"))
    (letter,) = await found(letters)
    await frontier.push([entry("https://a.test/2", "a.test")])
    leased, _ = await frontier.lease([letter.shard], 1, "r1", 9)
    (lease,) = leased[0].leases
    assert await letters.requeue([letter], time.ms) == 1
    again, _ = await frontier.lease([letter.shard], 1, "r1", 9)
    assert again[0].leases == ()
    (reply,) = await frontier.settle([Settlement(lease, time.ms, urls=[SettledUrl(lease.entries[0], "done", "200")])])
    assert reply.due_ms is not None
    assert (await Counters(store, frontier.keys).counts()).open == 1


async def test_a_denied_url_that_is_kept_can_be_queued_again(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    letters, counters = DeadLetters(store, frontier.keys), Counters(store, frontier.keys)
    await frontier.push([entry(f"https://a.test/{number}", "a.test") for number in range(4)])
    leased, _ = await frontier.lease(range(4), 1, "r1", 9)
    (lease,) = [lease for answer in leased for lease in answer.leases]
    keeps = (KEEP, "", KEEP, "")
    denied = [SettledUrl(one, "denied", "blocked", keep) for one, keep in zip(lease.entries, keeps, strict=True)]
    await frontier.settle([Settlement(lease, time.ms, urls=denied)])
    kept = await found(letters, reason="blocked")
    assert {letter.url for letter in kept} == {lease.entries[0].url, lease.entries[2].url}
    assert await letters.requeue(kept, time.ms) == 2
    counts = await counters.counts()
    assert (counts.accepted, counts.denied, counts.dead, counts.open) == (4, 2, 0, 2)
    assert counts.reasons == {"denied:blocked": 2}
