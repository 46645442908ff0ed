"""The transitions of the frontier, against a real server: each reply, the books after it, doubled calls, lost holders."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from frontier.books import Books
from frontier.entries import Entry, parse_entry
from frontier.letters import DeadLetter, DeadLetters
from frontier.queue import SETTLE_CHUNK, Frontier, FrontierSettings, Settled, Settlement, retry
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry, lease_one, make_frontier, settle_all


@pytest.fixture
def time() -> ManualTime:
    return ManualTime()


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time)


@pytest.fixture
def books(store: RedisStore, frontier: Frontier) -> Books:
    return Books(store, frontier.keys)


@pytest.fixture
def letters(store: RedisStore, frontier: Frontier) -> DeadLetters:
    return DeadLetters(store, frontier.keys)


class TestPush:
    async def test_a_url_is_accepted_once(self, frontier: Frontier) -> None:
        first = await frontier.push([entry()])
        second = await frontier.push([entry()])
        assert (first.accepted, first.known) == (1, 0)
        assert (second.accepted, second.known) == (0, 1)

    async def test_the_domain_cap_drops_and_counts(self, store: RedisStore, crawl_name: str, time: ManualTime) -> None:
        frontier = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=2))
        pushed = await frontier.push([entry(f"https://a.test/{n}") for n in range(5)])
        assert (pushed.accepted, pushed.capped) == (2, 3)
        counts = await Books(store, frontier.keys).counts()
        assert counts.accepted == 2
        assert counts.dropped == {"domain_cap": 3}

    async def test_a_capped_url_is_not_marked_as_seen(
        self, store: RedisStore, crawl_name: str, time: ManualTime
    ) -> None:
        tight = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=1))
        await tight.push([entry("https://a.test/1"), entry("https://a.test/2")])
        wide = await make_frontier(store, crawl_name, time, FrontierSettings(domain_cap=9))
        assert (await wide.push([entry("https://a.test/2")])).accepted == 1

    async def test_a_url_that_must_be_of_a_known_domain_is_queued_only_then(self, frontier: Frontier) -> None:
        """What keeps a crawl in the domains of its seeds, while links between these are followed."""
        stranger = entry("https://b.test/1", "b.test", mode="known")
        assert (await frontier.push([entry(), stranger])).outside == 1
        await frontier.push([entry("https://b.test/seed", "b.test")])
        assert (await frontier.push([stranger])).accepted == 1
        together = [entry("https://c.test/1", "c.test", mode="known"), entry("https://c.test/", "c.test", mode="again")]
        assert (await frontier.push(together[::-1])).accepted == 2

    async def test_a_url_can_be_queued_again_once_it_was_settled(self, frontier: Frontier, books: Books) -> None:
        """What a scheduled sitemap needs. While it is still queued, once is enough."""
        await frontier.push([entry()])
        assert (await frontier.push([entry(mode="again")])).accepted == 0
        await frontier.settle([settle_all(await lease_one(frontier))])
        assert await books.has_ended()
        assert (await frontier.push([entry(mode="again")])).accepted == 1
        counts = await books.counts()
        assert (counts.accepted, counts.open, counts.seen) == (2, 1, 1)

    async def test_the_seen_set_stays_exact_and_compact_while_its_buckets_split(
        self, store: RedisStore, frontier: Frontier
    ) -> None:
        """Linear hashing: every bucket stays an intset, and every URL is found again after any number of splits."""
        urls = [entry(f"https://a.test/{n}") for n in range(20_000)]
        assert (await frontier.push(urls)).accepted == 20_000
        assert (await frontier.push(urls)).known == 20_000
        keys = frontier.keys.shards[0]
        buckets = int(await store._client.hget(keys.stats, "buckets"))
        assert buckets > 90
        sizes = [await store._client.scard(keys.seen(bucket)) for bucket in range(buckets)]
        assert sum(sizes) == 20_000
        encodings = {await store._client.object("ENCODING", keys.seen(bucket)) for bucket in range(buckets)}
        assert encodings == {b"intset"}
        octets = [await store._client.memory_usage(keys.seen(bucket)) for bucket in range(buckets)]
        assert sum(octets) / 20_000 < 10


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
        """A domain that is due or leased, or a URL that waits."""
        frontier = await make_frontier(store, crawl_name, time, shards=9)
        shard = frontier.shard_of("a.test")
        assert await frontier.filled(range(9)) == set()
        await frontier.push([entry()])
        assert await frontier.filled(range(9)) == {shard}
        lease = await lease_one(frontier, shard=shard)
        assert await frontier.filled(range(9)) == {shard}
        later = retry(lease.entries[0], "timeout", time.ms + 1, 0.0)
        await frontier.settle([Settlement(lease, time.ms, urls=[later])])
        assert await frontier.filled(range(9)) == {shard}
        time.ms += 1
        await frontier.settle([settle_all(await lease_one(frontier, shard=shard))])
        assert await frontier.filled(range(9)) == set()

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
        self, frontier: Frontier, time: ManualTime, books: Books
    ) -> None:
        """Given a holder that was lost, when its lease has expired, then its URLs can be leased, but not at once: it may
        have sent a request up to the last moment."""
        await frontier.push([entry()])
        lost = await lease_one(frontier)
        time.ms = lost.expires_ms
        leased, _ = await frontier.lease([0], 2, "r2", 10)
        assert leased[0].leases == ()
        assert leased[0].next_ms == lost.expires_ms + 1000
        time.ms += 1000
        again = await lease_one(frontier, 2, "r2")
        assert again.token != lost.token
        assert [(e.url, e.lost) for e in again.entries] == [("https://a.test/1", 1)]
        assert (await books.counts()).leases_expired == 1

    async def test_a_lost_holder_cannot_settle_once_its_lease_was_taken_back(
        self, frontier: Frontier, time: ManualTime
    ) -> None:
        """Even before somebody else has the domain: its URLs are queued again, and its rest is not the holder's to set."""
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
        await frontier.lease([0], 1, "r1", 10)
        assert await store._client.zscore(frontier.keys.shards[0].due, "a.test") is None

    async def test_a_url_that_is_lost_with_its_holder_again_and_again_becomes_a_dead_letter(
        self, frontier: Frontier, time: ManualTime, books: Books, letters: DeadLetters
    ) -> None:
        await frontier.push([entry()])
        for epoch in range(1, 16):
            lease = await lease_one(frontier, epoch, f"r{epoch}")
            time.ms = lease.expires_ms
            await frontier.lease([0], epoch, f"r{epoch}", 0)
            time.ms += 1000
        counts = await books.counts()
        assert (counts.dead, counts.open) == (1, 0)
        assert [letter.reason async for letter in letters.find()] == ["lost_with_holder"]
        assert await books.has_ended()


class TestSettle:
    async def test_the_last_url_ends_the_lease(self, frontier: Frontier, books: Books) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        one, two = lease.entries
        (held,) = await frontier.settle([Settlement(lease, 0, urls=[Settled(one, "done", "200")])])
        assert held.expires_ms is not None
        (ended,) = await frontier.settle([Settlement(lease, 0, urls=[Settled(two, "denied", "robots")])])
        assert (ended.expires_ms, ended.due_ms, ended.stale) == (None, None, False)
        counts = await books.counts()
        assert (counts.done, counts.denied, counts.open, counts.domains_leased) == (1, 1, 0, 0)

    async def test_a_doubled_call_counts_once(self, frontier: Frontier, books: Books) -> None:
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        settlement = Settlement(lease, 0, urls=[Settled(lease.entries[0], "done", "200")])
        await frontier.settle([settlement])
        await frontier.settle([settlement])
        assert (await books.counts()).done == 1

    async def test_of_many_urls_only_those_in_flight_count(
        self, frontier: Frontier, books: Books, letters: DeadLetters
    ) -> None:
        await frontier.push([entry(f"https://a.test/{n}") for n in range(4)])
        lease = await lease_one(frontier)
        one, two, three, _ = lease.entries
        await frontier.settle([Settlement(lease, 0, urls=[Settled(one, "done", "200")])])
        again = [Settled(one, "done", "200"), Settled(two, "done", "200"), Settled(three, "dead", "x")]
        await frontier.settle([Settlement(lease, 0, urls=[*again, again[1]], octets=5)])
        counts = await books.counts()
        assert (counts.done, counts.dead, counts.open, counts.octets) == (2, 1, 1, 5)
        assert counts.reasons == {"done:200": 2, "dead:x": 1}
        assert [letter async for letter in letters.find()] == [DeadLetter(0, "a.test", three.raw, "x")]

    async def test_leases_of_one_shard_are_settled_each_by_itself(
        self, frontier: Frontier, time: ManualTime, books: Books
    ) -> None:
        """Given leases of one shard, one of which was lost, when they are settled together, then each is told how it
        stands, and the lost one changes nothing."""
        names = ["a.test", "b.test", "c.test"]
        await frontier.push([entry(f"https://{name}/{n}", name) for name in names for n in range(2)])
        leased, _ = await frontier.lease([0], 1, "r1", 3)
        ended, lost, held = leased[0].leases
        await frontier.release([Settlement(lost, time.ms)])
        replies = await frontier.settle(
            [
                settle_all(ended, time.ms),
                settle_all(lost, time.ms),
                Settlement(held, time.ms, 500, urls=[Settled(held.entries[0], "denied", "robots")]),
                Settlement(held, time.ms, 700, urls=[Settled(held.entries[1], "done", "200")]),
            ]
        )
        assert [reply.stale for reply in replies] == [False, True, False, False]
        assert [reply.expires_ms for reply in replies] == [None, None, time.ms + 30_000, None]
        counts = await books.counts()
        assert (counts.done, counts.denied, counts.open, counts.domains_due) == (3, 1, 2, 1)

    async def test_more_leases_than_one_call_takes(self, frontier: Frontier, books: Books) -> None:
        count = 2 * SETTLE_CHUNK + 1
        await frontier.push([entry(f"https://{n}.test/", f"{n}.test") for n in range(count)])
        leased, _ = await frontier.lease([0], 1, "r1", count)
        await frontier.settle([settle_all(lease) for lease in leased[0].leases])
        assert (await books.counts()).done == count
        assert await books.has_ended()

    async def test_a_call_that_arrives_after_a_later_one_shortens_nothing(
        self, store: RedisStore, frontier: Frontier, time: ManualTime
    ) -> None:
        """Given a renewal that was sent again because nobody answered, when the first copy arrives after the second, then
        the lease and the rest are still those of the second: the holder counts on them."""
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        lease = await lease_one(frontier)
        time.ms += 6000
        (renewed,) = await frontier.settle([Settlement(lease, next_ms=time.ms + 900)])
        time.ms -= 6000
        await frontier.settle([Settlement(lease, next_ms=time.ms)])
        assert await store._client.zscore(frontier.keys.shards[0].leases, "a.test") == renewed.expires_ms
        assert renewed.expires_ms == time.ms + 36_000
        (released,) = await frontier.release([Settlement(lease, next_ms=time.ms)])
        assert released.due_ms == time.ms + 6900

    async def test_a_stale_token_changes_nothing(self, frontier: Frontier, time: ManualTime, books: Books) -> None:
        await frontier.push([entry()])
        lost = await lease_one(frontier)
        time.ms = lost.expires_ms
        await frontier.lease([0], 2, "r2", 10)
        time.ms += 1000
        await lease_one(frontier, 2, "r2")
        before = await books.counts()
        (reply,) = await frontier.settle([settle_all(lost, next_ms=99)])
        assert reply.stale
        assert await books.counts() == before

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
        self, frontier: Frontier, time: ManualTime, books: Books
    ) -> None:
        await frontier.push([entry()])
        lease = await lease_one(frontier)
        later = retry(lease.entries[0], "timeout", time.ms + 60_000, -1.0)
        await frontier.settle([Settlement(lease, time.ms, urls=[later])])
        counts = await books.counts()
        assert (counts.waiting, counts.open, counts.retried) == (1, 1, 1)
        assert not await books.has_ended()
        leased, _ = await frontier.lease([0], 1, "r1", 1)
        assert leased[0].next_ms == time.ms + 60_000
        time.ms += 60_000
        (again,) = (await lease_one(frontier)).entries
        assert (again.tries, again.priority) == (1, -1.0)

    async def test_delay_and_state_stay_with_the_domain(self, frontier: Frontier, time: ManualTime) -> None:
        await frontier.push([entry("https://a.test/1")])
        lease = await lease_one(frontier)
        await frontier.settle([Settlement(lease, 0, 7000, "3:12:9", [Settled(lease.entries[0], "done", "200")])])
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


class TestEntries:
    @pytest.mark.parametrize(
        "url",
        [
            "https://a.test/x",
            "https://www.a.test/x?y",
            "http://a.test/",
            "http://www.a.test/é",
            "https://sub.a.test/x",
            "https://a.test:8443/x",
            "https://a.test.evil/x",
        ],
    )
    def test_any_url_survives_the_round_trip(self, url: str) -> None:
        original = Entry(url, "a.test", 1.5, depth=17, tries=2, hops=3, lost=4)
        assert parse_entry(original.raw, "a.test", 1.5) == original

    def test_where_a_url_was_found_survives_and_costs_nothing_when_it_is_not_kept(self) -> None:
        found = Entry("https://a.test/x?y", "a.test", depth=1, via="https://b.test/y?z")
        assert parse_entry(found.raw, "a.test", 0.0) == found
        assert parse_entry(found.again(-1.0).raw, "a.test", -1.0) == replace(found, tries=1, priority=-1.0)
        assert len(found.raw) == len(replace(found, via="").raw) + 1 + len(found.via)

    def test_the_head_costs_six_octets_and_the_domain_none(self) -> None:
        assert Entry("https://a.test/x", "a.test").raw == "s00000/x"
