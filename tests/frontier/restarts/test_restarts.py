"""A server that has lost its last writes: they are repeated, and count once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from unittest.mock import AsyncMock

import pytest

from frontier.counters import Counters
from frontier.crawls import create_crawl, open_crawl, verify_crawl
from frontier.errors import CrawlLost, RedisAway, ShardLost
from frontier.keys import CrawlKeys
from frontier.queue import PUSH_BATCH, Frontier
from frontier.recent_writes import KEPT_MS
from frontier.scripts import Call, Reply, command
from frontier.settle import Lease, SettledUrl, Settlement, retry
from frontier.shards import identify_shards, lost_shards
from frontier.store import RedisStore
from tests.frontier.helpers import entry, lease_one, settle_all
from tests.frontier.restarts.server import GRACE_MS, Server, counts, home, notice, repeat, urls


async def leased_by_another(server: Server) -> tuple[Frontier, Lease, Frontier, Lease]:
    """A replica with a lease that it has settled, which the server has lost, and another with a lease of the same URL,
    which it got before the first has repeated its writes."""
    one, two = await server.replica(), await server.replica()
    await one.push([entry()])
    kept = server.log_size()
    lost = await lease_one(one, shard=home(one))
    await one.settle([settle_all(lost)])
    server.restart(kept)
    await notice(two)
    await two.lease([home(two)], 2, "r2", 1)
    server.time.ms += GRACE_MS
    again = await lease_one(two, 2, "r2", home(two))
    await notice(one)
    return one, lost, two, again


async def _next_of(answers: list[Callable[..., Awaitable[list[Reply]]]], calls: Sequence[Call]) -> list[Reply]:
    return await answers.pop(0)(calls)


class TestALostTail:
    async def test_what_was_settled_is_settled_again_though_its_lease_is_lost(self, server: Server) -> None:
        # Given a lease, its page settled, and a link of it, all of which the server then loses,
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.push([entry("https://a.test/link")])
        await one.settle([settle_all(lease)])
        server.restart(kept)
        # when the replica sees the new run,
        await notice(one)
        assert await repeat(one) == []
        # then both are back, and counted once, however often this is repeated.
        assert await counts(one) == (2, 1, 1)
        await one.settle([settle_all(lease)])
        assert await one.revoke(urls(lease)) == [False]
        assert await counts(one) == (2, 1, 1)
        assert one.replaced_runs() == {}
        server.time.ms += 100_000
        assert [item.url for item in (await lease_one(one, shard=home(one))).entries] == ["https://a.test/link"]

    @pytest.mark.parametrize(("lost_ms", "is_old"), [(KEPT_MS // 2, False), (6 * KEPT_MS, True)])
    async def test_a_state_that_is_older_than_the_last_writes_is_told(
        self, server: Server, lost_ms: int, is_old: bool
    ) -> None:
        """As from a snapshot: what was settled in between cannot be repeated."""
        one = await server.replica()
        await one.push([entry(), entry("https://a.test/2")])
        lease = await lease_one(one, shard=home(one))
        await one.settle([settle_all(lease)])
        kept = server.log_size()
        await one.push([entry("https://a.test/3")])
        server.time.ms += 1_000
        await one.settle([settle_all(await lease_one(one, shard=home(one)))])
        server.time.ms += lost_ms
        await one.push([entry("https://a.test/4")])
        server.restart(kept)
        await notice(one)
        runs = one.replaced_runs()
        assert await one.old_shards(runs) == ({home(one): lease.token} if is_old else {})
        await repeat(one)
        await one.lease([home(one)], 1, "r1", 1)
        assert await one.old_shards(runs) == ({home(one): lease.token} if is_old else {})

    @pytest.mark.parametrize("is_old", [False, True])
    async def test_a_page_that_was_settled_before_the_last_writes_tells_it_too(
        self, server: Server, is_old: bool
    ) -> None:
        """Its lease may be the last one that was granted."""
        one = await server.replica()
        await one.push([entry(), entry("https://a.test/2")])
        lease = await lease_one(one, shard=home(one))
        sizes = {True: server.log_size()}
        await one.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "x")])])
        sizes[False] = server.log_size()
        server.time.ms += 2 * KEPT_MS
        await one.push([entry("https://a.test/3")])
        server.restart(sizes[is_old])
        await notice(one)
        runs = one.replaced_runs()
        assert await one.old_shards(runs) == ({home(one): lease.token} if is_old else {})
        await repeat(one)
        server.time.ms += 100_000  # the lease ends
        await one.lease([home(one)], 1, "r1", 1)
        assert await one.old_shards(runs) == ({home(one): lease.token} if is_old else {})

    async def test_a_state_without_any_lease_is_told(self, server: Server) -> None:
        """As from a snapshot that was made right after the seeds."""
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        await one.settle([settle_all(await lease_one(one, shard=home(one)))])
        server.time.ms += 2 * KEPT_MS
        await one.push([entry("https://a.test/2")])
        server.restart(kept)
        await notice(one)
        assert await one.old_shards(one.replaced_runs()) == {home(one): 0}
        # Values that somebody else has written tell of no lease.
        keys, (run,) = one.keys.shards[home(one)], one.replaced_runs().values()
        for tails in ("", "text"):
            await one._store.send([command("HSET", keys.owner, "run", run, "token", "text", "tails", tails)])
            assert await one.old_shards(one.replaced_runs()) == {home(one): 0}

    async def test_what_was_queued_before_the_last_writes_is_settled_again(self, server: Server) -> None:
        one = await server.replica()
        kept = server.log_size()
        await one.push([entry()])
        lease = await lease_one(one, shard=home(one))
        server.time.ms += 2 * KEPT_MS
        await one.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one)
        assert await repeat(one) == []
        assert await counts(one) == (1, 1, 0)

    async def test_what_an_ended_lease_seems_to_hold_is_settled_under_a_later_one(self, server: Server) -> None:
        """A server that does not know that the first one has ended has lost the second one."""
        one, two = await server.replica(), await server.replica()
        await one.push([entry()])
        first = await lease_one(one, shard=home(one))
        kept = server.log_size()
        await one.release([Settlement(first, 0)])
        second = await lease_one(two, 2, "r2", home(two))
        await two.settle([settle_all(second)])
        server.restart(kept)
        await notice(two)
        assert await repeat(two) == []
        assert await counts(two) == (1, 1, 0)

    async def test_the_writes_before_a_long_outage_are_repeated_after_it(self, server: Server) -> None:
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.push([entry("https://a.test/link")])
        await one.settle([settle_all(lease)])
        server.restart(kept)
        server.time.ms += 10 * KEPT_MS
        await notice(one)
        assert await repeat(one) == []
        assert await counts(one) == (2, 1, 1)

    async def test_repetitions_that_fail_midway_push_nothing_out_of_the_last_writes(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Some of the pushes arrive each time."""
        monkeypatch.setattr("frontier.recent_writes.KEPT_ENTRIES", 3 * PUSH_BATCH)
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.push([entry(f"https://a.test/more/{number}") for number in range(2 * PUSH_BATCH)])
        await one.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one)
        for _ in range(5):
            answers = [one._store.send, *[AsyncMock(side_effect=RedisAway("away", "node"))] * 9]
            with monkeypatch.context() as failing, pytest.raises(RedisAway):
                failing.setattr(one._store, "send", partial(_next_of, answers))
                await repeat(one)
        assert await repeat(one) == []
        assert await counts(one) == (2 * PUSH_BATCH + 1, 1, 2 * PUSH_BATCH)

    async def test_no_lease_is_granted_until_all_had_time_to_repeat_their_writes(self, server: Server) -> None:
        one, two = await server.replica(), await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        server.restart(kept)
        await notice(one, two)
        ((early,), _) = await two.lease([home(two)], 2, "r2", 1)
        assert (early.leases, early.next_ms) == ((), server.time.ms + GRACE_MS)
        await one.settle([settle_all(lease)])
        server.time.ms += GRACE_MS
        ((later,), _) = await two.lease([home(two)], 2, "r2", 1)
        assert later.leases == ()
        assert await counts(two) == (1, 1, 0)

    async def test_a_late_settlement_leaves_the_backoff_and_delay_of_a_later_holder(self, server: Server) -> None:
        one, lease, two, again = await leased_by_another(server)
        await two.settle([Settlement(again, server.time.ms, 7_000, "the later")])
        await repeat(one)
        await one.settle([Settlement(lease, server.time.ms, 1_000, "the earlier", settle_all(lease).urls)])
        fields = command("HMGET", one.keys.shards[home(one)].domain("a.test"), "delay", "state")
        assert await two._store.send([fields]) == [[b"7000", b"the later"]]

    async def test_what_another_has_leased_meanwhile_is_not_settled_by_the_late(self, server: Server) -> None:
        """Its page is kept by the other, so the late one learns that it has to remove its own."""
        one, lease, two, again = await leased_by_another(server)
        assert await repeat(one) == urls(lease)
        await two.settle([settle_all(again)])
        assert await two.revoke(urls(again)) == [False]
        assert await counts(two) == (1, 1, 0)

    async def test_the_late_learns_it_although_a_call_fails_meanwhile(
        self, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What failed is repeated as a whole, and must find the page again that has to be removed."""
        one, lease, _, _ = await leased_by_another(server)

        async def fails(*_: object, **__: object) -> None:
            raise RedisAway("lost")

        runs = one.replaced_runs()
        with monkeypatch.context() as patch, pytest.raises(RedisAway):
            patch.setattr(one, "_push", fails)
            await one.repeat_settlements(runs)
        assert all(map(one.may_repeat, urls(lease)))
        assert await repeat(one) == urls(lease)

    async def test_a_replica_leases_nothing_before_it_has_repeated_its_writes(self, server: Server) -> None:
        """It might lease what it has settled, and keep a second page of it."""
        one, two = await server.replica(), await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one, two)
        await two.lease([home(two)], 1, "r1", 1)
        server.time.ms += GRACE_MS
        assert await one.lease([home(one)], 1, "r1", 1) == ([], [])
        assert await repeat(one) == []
        ((later,), _) = await one.lease([home(one)], 1, "r1", 1)
        assert later.leases == ()
        assert await counts(one) == (1, 1, 0)

    async def test_what_was_leased_is_back_though_its_pusher_is_dead(self, server: Server) -> None:
        """On a cluster, another server may have kept that the page with the link was settled."""
        one, dead = await server.replica(), await server.replica()
        kept = server.log_size()
        await dead.push([entry(), entry("https://a.test/2")])
        lease = await lease_one(one, shard=home(one))
        await one.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "x")])])
        server.restart(kept)
        await notice(one)
        assert await repeat(one) == []
        assert await counts(one) == (2, 1, 1)
        assert await one.revoke(urls(lease)[:1]) == [False]

    async def test_what_was_leased_is_back_though_holder_and_pusher_are_dead(self, server: Server) -> None:
        """The heir of the holder removes its page, which has to be fetched again."""
        one, dead = await server.replica(), await server.replica()
        kept = server.log_size()
        await dead.push([entry()])
        lease = await lease_one(dead, shard=home(dead))
        await dead.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one)
        assert await one.revoke(urls(lease), one.keys.crawl) == [True]
        assert await counts(one) == (1, 0, 1)

    async def test_what_was_found_unsettled_is_not_settled_after_the_next_restart(self, server: Server) -> None:
        """Its page was removed meanwhile."""
        one, two = await server.replica(), await server.replica()
        await two.push([entry()])
        kept = server.log_size()
        # Given a URL that was settled, and leased by another after the server had lost that,
        lease = await lease_one(one, shard=home(one))
        await one.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one, two)
        await repeat(two)
        await two.lease([home(two)], 2, "r2", 1)
        server.time.ms += GRACE_MS
        again = await lease_one(two, 2, "r2", home(two))
        assert await repeat(one) == urls(lease)
        # when the other returns it, and the server is restarted once more,
        await two.release([Settlement(again, 0)])
        server.restart()
        await notice(one)
        # then the URL is fetched again.
        assert await repeat(one) == []
        assert await counts(one) == (1, 0, 1)

    async def test_what_was_found_unsettled_is_not_settled_by_a_call_on_its_way(self, server: Server) -> None:
        """The holder repeats a settlement and dies, its page is removed, and then the call arrives."""
        one, two = await server.replica(), await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.settle([settle_all(lease)])
        server.restart(kept)
        await notice(one, two)
        assert await two.revoke(urls(lease)) == [True]
        await one.settle([settle_all(lease)])
        assert await counts(two) == (1, 0, 1)

    async def test_the_heir_of_a_dead_holder_learns_what_was_lost(self, server: Server) -> None:
        """Even after others have fetched the URL again and settled it."""
        one, two = await server.replica(), await server.replica()
        await one.push([entry(), entry("https://a.test/2")])
        first = await lease_one(one, shard=home(one))
        await one.settle([Settlement(first, 0, urls=[SettledUrl(first.entries[0], "done", "x")])])
        await one.release([Settlement(first, 0)])
        kept = server.log_size()
        server.time.ms += 10
        second = await lease_one(one, shard=home(one))
        await one.settle([settle_all(second)])
        server.restart(kept)
        await notice(two)
        assert await two.revoke([*urls(first)[:1], *urls(second)]) == [False, True]
        server.time.ms += GRACE_MS
        again = await lease_one(two, 2, "r2", home(two))
        await two.settle([settle_all(again)])
        assert await two.revoke([*urls(first)[:1], *urls(second), *urls(again)]) == [False, True, False]

    async def test_a_retry_waits_again(self, server: Server) -> None:
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        ready_ms = server.time.ms + 60_000
        await one.settle([Settlement(lease, 0, urls=[retry(lease.entries[0], "http_500", ready_ms, -1.0)])])
        server.restart(kept)
        await notice(one)
        for _ in range(2):
            assert await repeat(one) == []
        found = await Counters(one._store, one.keys).counts()
        assert (found.waiting, found.retried, found.domains_unleased) == (1, 1, 0)

    async def test_two_restarts_in_a_row(self, server: Server) -> None:
        one = await server.replica()
        await one.push([entry()])
        kept = server.log_size()
        lease = await lease_one(one, shard=home(one))
        await one.settle([settle_all(lease)])
        for _ in range(3):
            server.restart(kept)
            await notice(one)
            assert await repeat(one) == []
        assert await counts(one) == (1, 1, 0)


# Lease calls whose replies are lost.


class TestALeaseCallWithoutAReply:
    async def test_twenty_in_a_row_cost_no_url_and_no_try(self, server: Server) -> None:
        """Its leases are granted again, and are not counted as lost with their holder."""
        one, deaf = await server.replica(), await server.replica()
        await one.push([entry(f"https://a.test/{n}") for n in range(5)])
        for _ in range(20):
            deaf._calls.clear()  # the reply is lost
            ((leased,), _) = await deaf.lease([home(deaf)], 1, "r1", 1)
            assert [item.taken_back for item in leased.leases[0].entries] == [0] * 5
            server.time.ms += 40_000
        await deaf.settle([settle_all(leased.leases[0])])
        found = await Counters(one._store, one.keys).counts()
        assert (found.done, found.dead, found.leases_expired) == (5, 0, 0)

    async def test_the_leases_begin_with_the_reply_that_arrives(self, server: Server) -> None:
        one = await server.replica()
        await one.push([entry()])
        first = await lease_one(one, shard=home(one))
        one._calls.clear()
        server.time.ms += 20_000
        second = await lease_one(one, shard=home(one))
        assert (second.token, second.expires_ms) == (first.token, first.expires_ms + 20_000)
        server.time.ms += 20_000
        assert [reply.stale for reply in await one.settle([settle_all(second)])] == [False]

    async def test_a_call_that_was_delayed_on_its_way_gets_nothing(self, server: Server) -> None:
        one, late = await server.replica(), await server.replica()
        await one.push([entry(), entry("https://a.test:81/", "a.test")])
        for _ in range(2):
            lease = await lease_one(one, shard=home(one))
            await one.settle([Settlement(lease, 0, urls=[SettledUrl(lease.entries[0], "done", "x")])])
            await one.release([Settlement(lease, 0)])
            server.time.ms += 5_000
        await one.push([entry("https://a.test/3")])
        ((leased,), _) = await late.lease([home(late)], 1, "r1", 1)
        assert leased.leases == ()


# A server that has lost all data of a shard.


class TestAShardWithoutData:
    @pytest.fixture
    async def one(self, server: Server) -> Frontier:
        """A replica that has leased a URL, and whose server is then cleared."""
        one = await server.replica()
        await one.push([entry()])
        self.lease = await lease_one(one, shard=home(one))
        return one

    async def clear(self, one: Frontier) -> None:
        await one._store.send([command("DEL", *map(str, await self.names(one)))])

    async def names(self, one: Frontier) -> list[str]:
        (found,) = await one._store.send([command("KEYS", f"{{news:{home(one)}}}:*")])
        return [name.decode() for name in found]

    async def test_no_call_takes_it_for_an_empty_one(self, one: Frontier) -> None:
        await self.clear(one)
        shard = home(one)
        for call in (
            one.push([entry()]),
            one.lease([shard], 1, "r1", 1),
            one.settle([settle_all(self.lease)]),
            one.release([Settlement(self.lease, 0)]),
            one.shards_with_work([0, 1]),
            Counters(one._store, one.keys).has_ended(),
            Counters(one._store, one.keys).open(),
        ):
            with pytest.raises(ShardLost) as lost:
                await call
            assert lost.value.shards == [shard]
        assert await self.names(one) == []
        assert await lost_shards(one._store, one.keys) == {shard: ""}

    async def test_a_shard_of_another_crawl_of_that_name_is_lost_too(self, one: Frontier) -> None:
        keys = CrawlKeys("news", 2, "another")
        with pytest.raises(CrawlLost):
            await identify_shards(one._store, keys, range(2))
        with pytest.raises(ShardLost):
            await Counters(one._store, keys).has_ended()


class TestCreation:
    async def test_all_shards_have_the_identity_before_the_crawl_exists(
        self, store: RedisStore, crawl_name: str
    ) -> None:
        """Two that create it at once agree, and one that died on its way is continued."""
        keys = CrawlKeys(crawl_name, 4)
        await store.send([command("SET", keys.draft, "ab" * 16)])
        await identify_shards(store, CrawlKeys(crawl_name, 4, "ab" * 16), range(2))
        made = await create_crawl(store, crawl_name, 4, b"{}")
        assert made.created
        assert made.fingerprint_key.hex() == "ab" * 16
        assert await lost_shards(store, made.keys) == {}
        assert not (await create_crawl(store, crawl_name, 8, b"other")).created
        assert (await open_crawl(store, crawl_name)).shards == 4
        await verify_crawl(store, made)
