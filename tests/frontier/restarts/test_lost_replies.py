"""Lease calls whose replies are lost."""

from __future__ import annotations

from frontier.counters import Counters
from frontier.settle import SettledUrl, Settlement
from tests.frontier.helpers import entry, lease_one, settle_all
from tests.frontier.restarts.server import Server, home


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
