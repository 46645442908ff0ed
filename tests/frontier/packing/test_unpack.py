"""Leases of packed queues: a domain stays due, whoever dies, and the order of priority holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from frontier.counters import Counters
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import UNPACK, Call, Reply
from frontier.settle import Settlement
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, ask, lease_one, make_frontier, settle_all
from tests.frontier.packing.queued_domain import DOMAIN, SETTINGS, Held, fetched, urls


class Dies(CountingStore):
    """The process dies before it unpacks anything."""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if any(call.script is UNPACK for call in calls):
            raise RedisAway("died")
        return await super().send(calls)


class TestLease:
    async def test_a_domain_stays_due_until_its_next_block_is_unpacked(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, held: Held
    ) -> None:
        """Its replica died before it unpacked the block."""
        dying = await make_frontier(Dies(store), frontier.keys.crawl, time, SETTINGS)
        await frontier.push(urls(100))
        rest = await fetched(dying, time)
        assert await held.queued() == 0
        assert await ask(store, "ZCARD", frontier.keys.shards[0].due) == 1
        (reply,), _ = await dying.lease([0], 1, "r1", 1)
        assert reply.leases == ()
        assert reply.next_ms is not None and reply.next_ms <= time.ms
        found = rest + await fetched(frontier, time, who=(2, "r2"))
        assert Counter(found) == Counter(entry.url for entry in urls(100))

    async def test_leases_that_end_leave_a_packed_domain_due(
        self, frontier: Frontier, store: RedisStore, time: ManualTime, counters: Counters
    ) -> None:
        """Returned and expired ones, while the queue itself is empty."""
        await frontier.push(urls(100))
        keys = frontier.keys.shards[0]
        all_at_once = FrontierSettings(batch=100, delay_ms=1, pack_above=16)
        dying = await make_frontier(Dies(store), frontier.keys.crawl, time, all_at_once)
        for epoch, end in enumerate(("settle", "release", "expire"), 1):
            time.ms += 300_000
            if epoch > 1:
                await frontier.lease([0], 2 * epoch, "r1", 1)  # unpacks
            lease = await lease_one(dying, 2 * epoch + 1, "r2")
            assert await ask(store, "EXISTS", keys.queue(DOMAIN)) == 0
            if end == "settle":
                await frontier.settle([settle_all(lease)])
            elif end == "release":
                await ask(store, "DEL", keys.inflight(DOMAIN))
                await frontier.release([Settlement(lease, time.ms)])
            else:
                await ask(store, "DEL", keys.inflight(DOMAIN))  # as if all of them had been lost too often
                time.ms += 200_000
                await dying.lease([0], 2 * epoch + 1, "r2", 0)
            assert await ask(store, "ZSCORE", keys.due, DOMAIN) is not None, end

    async def test_packed_urls_are_taken_before_those_of_a_lower_priority(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        await frontier.push(urls(40))
        await frontier.push([Entry(f"https://{DOMAIN}/low{n}", DOMAIN, priority=-1e6, depth=2) for n in range(4)])
        found = await fetched(frontier, time)
        assert all("low" in url for url in found[-4:])
        assert len(found) == 44
