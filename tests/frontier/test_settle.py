"""Settle and release on a real server: each reply, the counters after it, repeated calls, stale tokens."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.dead_letters import DeadLetter, DeadLetters
from frontier.errors import ShardLost
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.settle import (
    SETTLE_LEASES,
    SETTLE_URLS,
    Counted,
    Lease,
    LeasedUrl,
    SettledUrl,
    Settlement,
    parts_of,
    retry,
)
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, lease_one, make_frontier, settle_all

DEAD_LETTERS = 10_000


class TestSettle:
    async def test_the_last_url_ends_the_lease(self, frontier: Frontier, counters: Counters) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        one, two = lease.entries
        (held,) = await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "done", "200")])])
        assert held.expires_ms is not None
        (ended,) = await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(two, "denied", "robots")])])
        assert (ended.expires_ms, ended.due_ms, ended.stale) == (None, None, False)
        counts = await counters.counts()
        assert (counts.done, counts.denied, counts.open, counts.domains_leased) == (1, 1, 0, 0)

    async def test_a_doubled_call_counts_once(self, frontier: Frontier, counters: Counters) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        settlement = Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "200")])
        await frontier.settle([settlement])
        await frontier.settle([settlement])
        assert (await counters.counts()).done == 1

    async def test_a_shard_without_counters_is_lost_and_gets_none(self, frontier: Frontier, store: RedisStore) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        stats = frontier.keys.shards[0].stats
        await ask(store, "DEL", stats)
        with pytest.raises(ShardLost):
            await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "200")])])
        assert await ask(store, "EXISTS", stats) == 0

    async def test_of_many_urls_only_those_in_flight_count(
        self, frontier: Frontier, counters: Counters, letters: DeadLetters
    ) -> None:
        await frontier.push([entry(f"https://a.test/{n}") for n in range(4)])
        lease = await lease_one(frontier)
        one, two, three, _ = lease.entries
        await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "done", "200")])])
        again = [SettledUrl(one, "done", "200"), SettledUrl(two, "done", "200"), SettledUrl(three, "dead", "x")]
        await frontier.settle([Settlement(lease, 0, urls=[*again, again[1]], counted=Counted(received_bytes=5))])
        counts = await counters.counts()
        assert (counts.done, counts.dead, counts.open, counts.received_bytes) == (2, 1, 1, 5)
        assert counts.reasons == {"done:200": 2, "dead:x": 1}
        assert [letter async for letter in letters.find()] == [DeadLetter(0, "a.test", three.raw, "x")]

    async def test_a_shard_keeps_a_limited_number_of_dead_letters_and_counts_the_others(
        self, frontier: Frontier, counters: Counters, store: RedisStore
    ) -> None:
        """The URLs are settled anyway, and can be looked up in the output."""
        dead = frontier.keys.shards[0].dead
        for first in range(0, DEAD_LETTERS - 1, 999):
            letters = [word for number in range(first, first + 999) for word in (f"b.test\n{number}", "x")]
            await ask(store, "HSET", dead, *letters[: 2 * (DEAD_LETTERS - 1 - first)])
        await frontier.push([entry(f"https://a.test/{n}") for n in range(3)])
        lease = await lease_one(frontier)
        await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "dead", "x") for one in lease.entries])])
        assert await ask(store, "HLEN", dead) == DEAD_LETTERS
        counts = await counters.counts()
        assert (counts.dead, counts.open, counts.dropped) == (3, 0, {"dead_letters": 2})

    async def test_pages_of_which_something_was_left_out_are_counted_once(
        self, frontier: Frontier, counters: Counters
    ) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        settlement = Settlement(
            lease,
            0,
            urls=[SettledUrl(lease.entries[0], "done", "200")],
            counted=Counted(cut={"links": 1, "time": 2}, rejected={"shop:price:type": 3}),
        )
        await frontier.settle([settlement])
        await frontier.settle([settlement])
        counts = await counters.counts()
        assert (counts.cut, counts.rejected) == ({"links": 1, "time": 2}, {"shop:price:type": 3})

    async def test_leases_of_one_shard_are_settled_each_by_itself(
        self, frontier: Frontier, time: ManualTime, counters: Counters
    ) -> None:
        """Given leases of one shard, one of which was lost, when they are settled together, then each gets its own reply,
        and the lost one changes nothing."""
        names = ["a.test", "b.test", "c.test"]
        await frontier.push([entry(f"https://{name}/{n}", name) for name in names for n in range(2)])
        leased, _ = await frontier.lease([0], 1, "r1", 3)
        ended, lost, held = leased[0].leases
        await frontier.release([Settlement(lost, time.ms)])
        replies = await frontier.settle(
            [
                settle_all(ended, time.ms),
                settle_all(lost, time.ms),
                Settlement(held, time.ms, 500, urls=[SettledUrl(held.entries[0], "denied", "robots")]),
                Settlement(held, time.ms, 700, urls=[SettledUrl(held.entries[1], "done", "200")]),
            ]
        )
        assert [reply.stale for reply in replies] == [False, True, False, False]
        assert [reply.expires_ms for reply in replies] == [None, None, time.ms + 30_000, None]
        counts = await counters.counts()
        assert (counts.done, counts.denied, counts.open, counts.domains_unleased) == (3, 1, 2, 1)

    async def test_more_leases_than_one_call_takes(self, frontier: Frontier, counters: Counters) -> None:
        count = 2 * SETTLE_LEASES + 1
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test") for n in range(count)])
        leased, _ = await frontier.lease([0], 1, "r1", count)
        await frontier.settle([settle_all(lease) for lease in leased[0].leases])
        assert (await counters.counts()).done == count
        assert await counters.has_ended()

    async def test_a_call_takes_some_leases_and_some_urls(self, frontier: Frontier) -> None:
        pages = [entry(f"https://{n}.test/{page}", f"{n}.test") for n in range(60) for page in range(32)]
        await frontier.push(pages)
        leased, _ = await frontier.lease([0], 1, "r1", 60)
        settlements = [settle_all(lease) for lease in leased[0].leases]
        parts = list(parts_of(settlements, range(60)))
        assert [place for part in parts for place in part] == list(range(60))
        sizes = [sum(len(settlements[place].urls) for place in part) for part in parts]
        assert len(sizes) > 1 and SETTLE_URLS // 2 < max(sizes) <= SETTLE_URLS

    async def test_a_call_that_arrives_after_a_later_one_shortens_nothing(
        self, store: RedisStore, frontier: Frontier, time: ManualTime
    ) -> None:
        """Given a renewal that was sent again because no reply came, when the first copy arrives after the second, then the
        lease and the delay are still those of the second, because the holder relies on them."""
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        time.ms += 6000
        (renewed,) = await frontier.settle([Settlement(lease, next_ms=time.ms + 900)])
        time.ms -= 6000
        await frontier.settle([Settlement(lease, next_ms=time.ms)])
        assert int(await ask(store, "ZSCORE", frontier.keys.shards[0].leases, "a.test")) == renewed.expires_ms
        assert renewed.expires_ms == time.ms + 36_000
        (released,) = await frontier.release([Settlement(lease, next_ms=time.ms)])
        assert released.due_ms == time.ms + 6900

    async def test_a_stale_token_changes_nothing(
        self, frontier: Frontier, time: ManualTime, counters: Counters
    ) -> None:
        await frontier.push([entry()])
        lost = await lease_one(frontier)
        time.ms = lost.expires_ms
        await frontier.lease([0], 2, "r2", 10)
        time.ms += 1000
        await lease_one(frontier, 2, "r2")
        before = await counters.counts()
        (reply,) = await frontier.settle([settle_all(lost, next_ms=99)])
        assert reply.stale
        assert await counters.counts() == before

    async def test_a_domain_with_urls_left_is_due_when_politeness_says(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(batch=1))
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        (reply,) = await frontier.settle([settle_all(lease, next_ms=time.ms + 500)])
        assert reply.due_ms == time.ms + 500
        leased, _ = await frontier.lease([0], 1, "r1", 1)
        assert leased[0].leases == ()
        time.ms += 500
        await lease_one(frontier)

    async def test_an_idle_domain_remembers_when_it_may_be_fetched_from(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        await frontier.push([entry("https://a.test/1")])
        await frontier.settle([settle_all(await lease_one(frontier), next_ms=time.ms + 5000)])
        await frontier.push([entry("https://a.test/2")])
        leased, _ = await frontier.lease([0], 1, "r1", 1)
        assert (leased[0].leases, leased[0].next_ms) == ((), time.ms + 5000)

    async def test_a_retry_waits_and_comes_back_with_its_tries(
        self, frontier: Frontier, time: ManualTime, counters: Counters
    ) -> None:
        await frontier.push([entry()])
        lease = await lease_one(frontier)
        later = retry(lease.entries[0], "timeout", time.ms + 60_000, -1.0)
        await frontier.settle([Settlement(lease, time.ms, urls=[later])])
        counts = await counters.counts()
        assert (counts.waiting, counts.open, counts.retried) == (1, 1, 1)
        assert not await counters.has_ended()
        leased, _ = await frontier.lease([0], 1, "r1", 1)
        assert leased[0].next_ms == time.ms + 60_000
        time.ms += 60_000
        (again,) = (await lease_one(frontier)).entries
        assert (again.tries, again.priority) == (1, -1.0)

    async def test_delay_and_state_stay_with_the_domain(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry("https://a.test/1")])
        lease = await lease_one(frontier)
        await frontier.settle([Settlement(lease, 0, 7000, "3:12:9", [SettledUrl(lease.entries[0], "done", "200")])])
        await frontier.push([entry("https://a.test/2")])
        again = await lease_one(frontier)
        assert (again.delay_ms, again.state) == (7000, "3:12:9")

    async def test_without_urls_it_renews(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry()])
        lease = await lease_one(frontier)
        time.ms += 20_000
        (reply,) = await frontier.settle([Settlement(lease, 0)])
        assert reply.expires_ms == time.ms + 30_000


class TestRelease:
    async def test_gives_everything_back_as_it_came(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry("https://a.test/1", priority=-2.0)])
        lease = await lease_one(frontier)
        (reply,) = await frontier.release([Settlement(lease, time.ms + 10)])
        assert reply.due_ms == time.ms + 10
        time.ms += 10
        assert (await lease_one(frontier, 2, "r2")).entries == lease.entries

    async def test_a_stale_token_changes_nothing(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry()])
        lease = await lease_one(frontier)
        await frontier.release([Settlement(lease, time.ms)])
        held = await lease_one(frontier)
        (reply,) = await frontier.release([Settlement(lease, time.ms)])
        assert reply.stale
        assert not (await frontier.settle([settle_all(held)]))[0].stale


# `revoke` reports the URLs of a stale lease that were not settled under it. Runs on a real server.


def leased_urls(lease: Lease) -> list[LeasedUrl]:
    return [LeasedUrl(lease.shard, lease.domain, lease.token, entry) for entry in lease.entries]


def settle_first(lease: Lease) -> Settlement:
    return Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "x")])


class TestRevoke:
    @pytest.fixture
    async def lease(self, frontier: Frontier) -> Lease:
        """A lease on three URLs."""
        await frontier.push([entry(f"https://a.test/{n}", priority=-n) for n in range(3)])
        return await lease_one(frontier)

    async def test_what_was_settled_is_told_from_what_was_not(self, frontier: Frontier, lease: Lease) -> None:
        await frontier.settle([settle_first(lease)])
        for _ in range(2):
            assert await frontier.revoke(leased_urls(lease)) == [False, True, True]

    async def test_also_after_others_have_settled_the_rest(
        self, frontier: Frontier, lease: Lease, time: ManualTime, counters: Counters
    ) -> None:
        await frontier.settle([settle_first(lease)])
        time.ms += 100_000
        again = await lease_one(frontier, replica="r1")
        assert await frontier.revoke(leased_urls(lease)) == [False, True, True]
        await frontier.settle([settle_all(again)])
        assert await frontier.revoke(leased_urls(lease)) == [False, True, True]
        assert await frontier.revoke(leased_urls(again)) == [False, False]
        assert (await counters.counts()).done == 3

    async def test_a_settle_that_comes_after_it_changes_nothing(
        self, frontier: Frontier, lease: Lease, time: ManualTime, counters: Counters
    ) -> None:
        assert await frontier.revoke(leased_urls(lease)[:1]) == [True]
        (reply,) = await frontier.settle([settle_all(lease)])
        assert reply.stale
        # The lease expires as ever, and its URLs are leased again: nothing is lost.
        assert (await counters.counts()).open == 3
        time.ms += 100_000
        again = await lease_one(frontier)
        assert {one.url for one in again.entries} == {one.url for one in lease.entries}

    async def test_a_settle_whose_reply_was_lost_has_settled(self, frontier: Frontier, lease: Lease) -> None:
        await frontier.settle([settle_all(lease)])
        (reply,) = await frontier.settle([settle_all(lease)])
        assert reply.stale
        assert await frontier.revoke(leased_urls(lease)) == [False, False, False]

    async def test_what_will_be_tried_again_was_settled(self, frontier: Frontier, lease: Lease) -> None:
        one = lease.entries[0]
        await frontier.settle([Settlement(lease, 0, urls=[retry(one, "http_500", 0, -1.0)])])
        assert await frontier.revoke(leased_urls(lease)) == [False, True, True]

    async def test_of_another_crawl_and_of_a_shard_without_data_nothing_is_known(
        self, frontier: Frontier, lease: Lease, store: RedisStore
    ) -> None:
        """An answer that is not known must not read as "settled"."""
        assert await frontier.revoke(leased_urls(lease), "another") == [None, None, None]
        assert await frontier.revoke([]) == []
        assert await frontier.revoke(leased_urls(lease), frontier.keys.crawl) == [True, True, True]
        await store.send([command("DEL", frontier.keys.shards[0].stats)])
        assert await frontier.revoke(leased_urls(lease)) == [None, None, None]

    async def test_what_was_lost_with_its_holders_is_remembered_however_much_it_is(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(batch=1_000, delay_ms=1))
        await frontier.push([entry(f"https://a.test/{n}") for n in range(1_000)])
        leases = []
        for _ in range(6):
            leases.append(await lease_one(frontier))
            time.ms += 100_000
        await frontier.lease([0], 1, "r1", 1)
        assert await store.send([command("ZCARD", frontier.keys.shards[0].lost)]) == [6_000]
        for lease in leases:
            assert await frontier.revoke(leased_urls(lease)) == [True] * 1_000

    async def test_after_days_the_answer_is_unknown(self, frontier: Frontier, lease: Lease, time: ManualTime) -> None:
        """The record is removed after three days, so that Redis does not fill up with it."""
        time.ms += 100_000
        again = await lease_one(frontier)
        assert await frontier.revoke(leased_urls(lease)) == [True, True, True]
        time.ms += 3 * 86_400_000
        await lease_one(frontier)
        assert await frontier.revoke(leased_urls(lease)) == [None, None, None]
        assert await frontier.revoke(leased_urls(again)) == [True, True, True]
