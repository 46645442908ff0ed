"""`revoke` reports the URLs of a stale lease that were not settled under it. Runs on a real server."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import command
from frontier.settle import Lease, LeasedUrl, SettledUrl, Settlement, retry
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry, lease_one, make_frontier, settle_all


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
