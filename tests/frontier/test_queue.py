"""Push and lease on a real server: each reply, the counters after it, repeated calls, lost holders."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from frontier.counters import Counters
from frontier.dead_letters import DeadLetters
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import Settlement, postpone, retry
from frontier.shards import identify_shards
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, lease_one, make_frontier, settle_all


class TestPush:
    async def test_a_url_is_accepted_once(self, frontier: Frontier) -> None:
        first = await frontier.push([entry()])
        second = await frontier.push([entry()])
        assert (first.accepted, first.seen) == (1, 0)
        assert (second.accepted, second.seen) == (0, 1)

    async def test_the_domain_cap_drops_and_counts(self, store: RedisStore, crawl_name: str, time: ManualTime) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=2))
        pushed = await frontier.push([entry(f"https://a.test/{n}") for n in range(5)])
        assert (pushed.accepted, pushed.capped) == (2, 3)
        counts = await Counters(store, frontier.keys).counts()
        assert counts.accepted == 2
        assert counts.dropped == {"domain_cap": 3}

    async def test_links_from_other_domains_fill_half_of_the_domain_cap(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=6))
        foreign = [replace(entry(f"https://a.test/junk{n}"), mode="foreign") for n in range(5)]
        pushed = await frontier.push(foreign)
        assert (pushed.accepted, pushed.capped) == (3, 2)
        pushed = await frontier.push([replace(one, mode="known") for one in foreign])
        assert (pushed.accepted, pushed.seen, pushed.capped) == (0, 3, 2)
        pushed = await frontier.push([entry(f"https://a.test/{n}") for n in range(5)])
        assert (pushed.accepted, pushed.capped) == (3, 2)

    async def test_a_capped_url_is_not_marked_as_seen(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        tight = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=1))
        await tight.push([entry("https://a.test/1"), entry("https://a.test/2")])
        wide = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=9))
        assert (await wide.push([entry("https://a.test/2")])).accepted == 1

    async def test_a_url_that_must_be_of_a_known_domain_is_queued_only_then(self, frontier: Frontier) -> None:
        """This keeps a crawl in the domains of its seeds, and follows links between them."""
        stranger = entry("https://b.test/1", "b.test", mode="known")
        assert (await frontier.push([entry(), stranger])).outside == 1
        await frontier.push([entry("https://b.test/seed", "b.test")])
        assert (await frontier.push([stranger])).accepted == 1
        together = [entry("https://c.test/1", "c.test", mode="known"), entry("https://c.test/", "c.test", mode="again")]
        assert (await frontier.push(together[::-1])).accepted == 2

    async def test_links_that_all_lead_out_of_the_crawl_cost_no_script_call(
        self, store: RedisStore, frontier: Frontier
    ) -> None:
        """Most links to other sites do, each to a shard of its own."""
        await frontier.push([entry()])
        before = (await store.info("commandstats"))["cmdstat_evalsha"]
        outside = [entry(f"https://{n}.test/", f"{n}.test", mode="known") for n in range(40)]
        assert (await frontier.push(outside)).outside == 40
        assert (await store.info("commandstats"))["cmdstat_evalsha"] == before

    async def test_a_url_can_be_queued_again_once_it_was_settled(self, frontier: Frontier, counters: Counters) -> None:
        """Scheduled sitemaps need this. A URL that is still queued is not queued twice."""
        await frontier.push([entry()])
        assert (await frontier.push([entry(mode="again")])).accepted == 0
        await frontier.settle([settle_all(await lease_one(frontier))])
        assert await counters.has_ended()
        assert (await frontier.push([entry(mode="again")])).accepted == 1
        counts = await counters.counts()
        assert (counts.accepted, counts.open, counts.seen) == (2, 1, 1)

    @pytest.mark.parametrize("priority", [math.nan, math.inf, -math.inf, pytest.param(10**400, id="huge"), 1e300])
    async def test_a_priority_that_is_no_ordinary_number_loses_no_url(
        self, frontier: Frontier, counters: Counters, priority: float
    ) -> None:
        await frontier.push([entry(), entry("https://a.test/odd", priority=priority), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        assert {one.url for one in lease.entries} == {"https://a.test/1", "https://a.test/2", "https://a.test/odd"}
        await frontier.settle([settle_all(lease)])
        assert await counters.has_ended()

    async def test_a_seed_whose_lease_expires_and_that_is_queued_again_counts_once_if_that_lease_expires_too(
        self, frontier: Frontier, counters: Counters, time: ManualTime
    ) -> None:
        await frontier.push([entry()])
        await lease_one(frontier)
        time.ms += 2 * frontier.settings.lease_ms
        await frontier.lease([0], 2, "r2", 0)  # takes it back
        await frontier.push([entry(priority=1.0, mode="again")])
        frontier.settings = replace(frontier.settings, batch=1)
        time.ms += frontier.settings.lease_ms
        await lease_one(frontier, epoch=2, replica="r2")
        time.ms += 2 * frontier.settings.lease_ms
        await frontier.lease([0], 3, "r3", 0)
        time.ms += frontier.settings.lease_ms
        await frontier.settle([settle_all(await lease_one(frontier, epoch=3, replica="r3"))])
        assert (await counters.counts()).open == 0
        assert await counters.has_ended()

    @pytest.mark.parametrize("when", ["leased", "waiting", "woken while leased", "waiting twice"])
    async def test_a_url_that_is_queued_again_while_it_is_open_is_settled_once(
        self, frontier: Frontier, counters: Counters, time: ManualTime, when: str
    ) -> None:
        """Both copies become one entry. The crawl ends when that is settled."""

        async def wait() -> None:
            lease = await lease_one(frontier)
            await frontier.settle([Settlement(lease, 0, urls=[postpone(lease.entries[0], "x", time.ms + 50)])])

        await frontier.push([entry()])
        if when == "leased":
            lease = await lease_one(frontier)
            assert (await frontier.push([entry(mode="again")])).accepted == 0
            await frontier.release([Settlement(lease, 0)])
        else:
            await wait()
            assert (await frontier.push([entry(mode="again")])).accepted == 1
            if when == "waiting twice":
                await wait()
            if when == "woken while leased":
                lease = await lease_one(frontier)
                time.ms += 50
                await frontier.lease([0], 1, "r1", 1)
                await frontier.release([Settlement(lease, 0)])
            time.ms += 50
        assert not await counters.has_ended()
        await frontier.settle([settle_all(await lease_one(frontier))])
        counts = await counters.counts()
        assert (counts.accepted, counts.done, counts.denied, counts.open) == (1, 1, 0, 0)
        assert await counters.has_ended()

    async def test_the_seen_set_stays_exact_and_compact_while_its_buckets_split(
        self, store: RedisStore, frontier: Frontier
    ) -> None:
        """Linear hashing: every bucket stays an intset, and every URL is found again after any number of splits."""
        urls = [entry(f"https://a.test/{n}") for n in range(20_000)]
        assert (await frontier.push(urls)).accepted == 20_000
        assert (await frontier.push(urls)).seen == 20_000
        keys = frontier.keys.shards[0]
        buckets = int(await ask(store, "HGET", keys.stats, "buckets"))
        assert buckets > 90
        sizes = [await ask(store, "SCARD", keys.seen(bucket)) for bucket in range(buckets)]
        assert sum(sizes) == 20_000
        encodings = {await ask(store, "OBJECT", "ENCODING", keys.seen(bucket)) for bucket in range(buckets)}
        assert encodings == {b"intset"}
        size = [await ask(store, "MEMORY", "USAGE", keys.seen(bucket)) for bucket in range(buckets)]
        assert sum(size) / 20_000 < 10


class TestLease:
    async def test_takes_the_best_urls_of_the_domain_first_due(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry("https://a.test/low", priority=-3), entry("https://a.test/high", priority=-1)])
        time.ms += 1
        await frontier.push([entry("https://b.test/", "b.test")])
        time.ms += 1
        assert (await frontier.lease([0], 1, "r1", 0))[0][0].leases == ()  # none is asked for
        leased, _ = await frontier.lease([0], 1, "r1", 10)
        assert [lease.domain for lease in leased[0].leases] == ["a.test", "b.test"]
        assert [e.url for e in leased[0].leases[0].entries] == ["https://a.test/high", "https://a.test/low"]

    async def test_urgent_domains_come_before_others_that_are_due(self, frontier: Frontier, time: ManualTime) -> None:
        """The highest priority first. A priority that is no longer queued counts no more."""
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test") for n in range(300)])
        time.ms += 1_000
        urgent = {"high.test": 9.0, "low.test": 1.0, "mid.test": 5.0}
        await frontier.push([entry(f"https://{name}/", name, priority=at) for name, at in urgent.items()])
        await frontier.push([entry("https://mid.test/2", "mid.test")])
        (reply,), _ = await frontier.lease([0], 1, "r1", 4)
        assert [lease.domain for lease in reply.leases] == ["high.test", "mid.test", "low.test", "0.test"]
        await frontier.settle([settle_all(reply.leases[0]), replace(settle_all(reply.leases[1]), urls=[])])
        assert await frontier.shards_with_urgent([0]) == [0]
        (reply,), _ = await frontier.lease([0], 1, "r1", 2)
        assert [lease.domain for lease in reply.leases] == ["1.test", "10.test"]

    async def test_an_urgent_url_stays_urgent_when_it_is_tried_again(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        await frontier.push([entry("https://u.test/", "u.test", priority=9.0)])
        lease = await lease_one(frontier)
        later = time.ms + 5_000
        again = retry(lease.entries[0], "http_500", later, 8.0)
        await frontier.settle([Settlement(lease, later, urls=[again])])
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test") for n in range(3)])
        assert {(await lease_one(frontier)).domain, (await lease_one(frontier)).domain} == {"0.test", "1.test"}
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test") for n in range(3, 6)])
        time.ms = later
        assert (await lease_one(frontier)).domain == "u.test"

    async def test_a_lease_among_many_due_and_urgent_domains_takes_little_of_the_server(
        self, store: RedisStore, frontier: Frontier
    ) -> None:
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test", priority=n % 2) for n in range(20_000)])
        before = await store.info("commandstats")
        assert (await lease_one(frontier)).entries[0].priority == 1.0
        after = await store.info("commandstats")

        def calls(of: dict[str, str]) -> int:
            return sum(int(line.partition("calls=")[2].partition(",")[0]) for line in of.values())

        assert calls(after) - calls(before) < 40

    async def test_takes_no_more_than_a_batch_and_leaves_the_others(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(batch=3))
        await frontier.push([entry(f"https://a.test/{n}", priority=n % 4) for n in range(8)])
        first = await lease_one(frontier)
        assert [e.priority for e in first.entries] == [3, 3, 2]
        await frontier.settle([settle_all(first)])
        assert [e.priority for e in (await lease_one(frontier)).entries] == [2, 1, 1]

    async def test_tells_in_which_shards_there_is_something(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        """A shard has work if a domain is queued or leased, or a URL waits."""
        frontier = await make_frontier(store, crawl_name, time, shards=9)
        shard = frontier.shard_of("a.test")
        assert await frontier.shards_with_work(range(9)) == set()
        await frontier.push([entry()])
        assert await frontier.shards_with_work(range(9)) == {shard}
        lease = await lease_one(frontier, shard=shard)
        assert await frontier.shards_with_work(range(9)) == {shard}
        later = retry(lease.entries[0], "timeout", time.ms + 1, 0.0)
        await frontier.settle([Settlement(lease, time.ms, urls=[later])])
        assert await frontier.shards_with_work(range(9)) == {shard}
        time.ms += 1
        await frontier.settle([settle_all(await lease_one(frontier, shard=shard))])
        assert await frontier.shards_with_work(range(9)) == set()

    async def test_a_leased_domain_is_not_leased_again(self, frontier: Frontier) -> None:
        await frontier.push([entry()])
        await lease_one(frontier)
        await frontier.push([entry("https://a.test/2")])
        leased, _ = await frontier.lease([0], 1, "r1", 10)
        assert leased[0].leases == ()

    async def test_an_older_epoch_is_fenced_off(self, frontier: Frontier) -> None:
        await frontier.push([entry()])
        await frontier.lease([0], 5, "new", 1)
        leased, fenced = await frontier.lease([0], 4, "old", 1)
        assert leased == []
        assert len(fenced) == 1

    async def test_another_replica_in_the_same_epoch_is_fenced_off(self, frontier: Frontier) -> None:
        await frontier.lease([0], 5, "one", 1)
        _, fenced = await frontier.lease([0], 5, "two", 1)
        assert len(fenced) == 1

    async def test_the_batch_fits_into_half_of_the_lease(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        settings = FrontierSettings(lease_ms=10_000, batch=32, delay_ms=1_000)
        frontier = await make_frontier(store, crawl_name, time, settings)
        await frontier.push([entry(f"https://a.test/{n}") for n in range(40)])
        assert len((await lease_one(frontier)).entries) == 5

    async def test_an_expired_lease_is_taken_back_and_waits_the_delay(
        self, frontier: Frontier, time: ManualTime, counters: Counters
    ) -> None:
        """Given a lost holder, when its lease has expired, then its URLs can be leased only after the delay, because it may
        have sent a request until the very end of the lease."""
        await frontier.push([entry()])
        lost = await lease_one(frontier)
        time.ms = lost.expires_ms
        leased, _ = await frontier.lease([0], 2, "r2", 10)
        assert leased[0].leases == ()
        assert leased[0].next_ms == lost.expires_ms + 1000
        time.ms += 1000
        again = await lease_one(frontier, 2, "r2")
        assert again.token != lost.token
        assert [(e.url, e.taken_back) for e in again.entries] == [("https://a.test/1", 1)]
        assert (await counters.counts()).leases_expired == 1

    async def test_a_reply_says_what_comes_first_after_it(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry("https://a.test/1")])
        (one,), _ = await frontier.lease([0], 1, "r1", 1)
        assert one.next_ms == one.leases[0].expires_ms
        time.ms += 10
        await frontier.push([entry(f"https://{name}.test/1", f"{name}.test") for name in "bc"])
        (two,), _ = await frontier.lease([0], 1, "r1", 1)
        assert two.next_ms == time.ms  # another domain is due
        await frontier.lease([0], 1, "r1", 1)
        (none,), _ = await frontier.lease([0], 1, "r1", 1)
        assert none.next_ms == one.leases[0].expires_ms
        await frontier.release([Settlement(one.leases[0], two.leases[0].expires_ms + 5)])
        (none,), _ = await frontier.lease([0], 1, "r1", 1)
        assert none.next_ms == two.leases[0].expires_ms

    async def test_a_token_that_redis_forgot_is_never_used_again(
        self, store: RedisStore, frontier: Frontier, time: ManualTime
    ) -> None:
        """A server that has lost its last second of writes does not know which tokens it gave out in it."""
        await frontier.push([entry()])
        keys = frontier.keys.shards[0]
        forgotten = await lease_one(frontier)
        await ask(store, "DEL", *await ask(store, "KEYS", keys.base + "*"))
        await identify_shards(store, frontier.keys, [0])
        await frontier.push([entry()])
        time.ms += 1
        assert (await lease_one(frontier)).token > forgotten.token

    async def test_a_lost_holder_cannot_settle_once_its_lease_was_taken_back(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        """This applies even before the domain is leased again: its URLs are queued, and the holder may not set its
        delay."""
        await frontier.push([entry()])
        lost = await lease_one(frontier)
        time.ms = lost.expires_ms
        await frontier.lease([0], 2, "r2", 0)
        (reply,) = await frontier.settle([settle_all(lost)])
        assert reply.stale

    async def test_a_waiting_url_that_wakes_does_not_make_a_leased_domain_due(
        self, store: RedisStore, frontier: Frontier, time: ManualTime
    ) -> None:
        await frontier.push([entry("https://a.test/1")])
        lease = await lease_one(frontier)
        await frontier.settle([Settlement(lease, 0, urls=[retry(lease.entries[0], "timeout", time.ms + 5000, 0.0)])])
        await frontier.push([entry("https://a.test/2")])
        await lease_one(frontier)
        time.ms += 5000
        replies, _ = await frontier.lease([0], 1, "r1", 10)
        assert not any(reply.leases for reply in replies)
        assert await ask(store, "ZSCORE", frontier.keys.shards[0].due, "a.test") is None

    async def test_a_url_that_is_lost_with_its_holder_again_and_again_becomes_a_dead_letter(
        self, frontier: Frontier, time: ManualTime, counters: Counters, letters: DeadLetters
    ) -> None:
        await frontier.push([entry()])
        for epoch in range(1, 16):
            lease = await lease_one(frontier, epoch, f"r{epoch}")
            time.ms = lease.expires_ms
            await frontier.lease([0], epoch, f"r{epoch}", 0)
            time.ms += 1000
        counts = await counters.counts()
        assert (counts.dead, counts.open) == (1, 0)
        assert [letter.reason async for letter in letters.find()] == ["lost_with_holder"]
        assert await counters.has_ended()
