"""The order of the steps of a commit, the counters after it, and the last writes after a restart of the server."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from crawler.errors import SinkFull
from crawler.events import Events, WritesRepeated
from crawler.page import Exchange, Outcome, Page, Written
from crawler.redis_retry import RedisRetry
from crawler.scope.scope import RecentUrls
from crawler.sinks.archive import Archive
from crawler.worker.commit import BACKLOG, BACKLOG_BYTES, LINK_BYTES, MANY_LINKS, Committer, PageSink, Result
from crawler.worker.leases import HeldLeases, LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.clock import ServerClock, SystemClock
from frontier.counters import Counters, Counts
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.queue import Frontier, FrontierSettings
from frontier.scripts import Call, Reply, command
from frontier.settle import LeasedUrl, SettledUrl, Settlement, with_next_visit
from frontier.shards import Nodes, identify_shards
from frontier.store import RedisStore, Store, connect
from tests.frontier.helpers import CountingStore, ManualTime, ask, make_frontier
from tests.sinks.values import exchange, page, settings
from tests.valkey import ValkeyProcess
from tests.valkey_cluster import ValkeyCluster
from tests.worker.helpers import leased_domain, on_a_clock, runtime

SAME = b"the same everywhere " * 100
PAGE = Entry("https://site.test/a", "site.test")
LINK = Entry("https://site.test/linked", "site.test")


class Sink:
    """Remembers what it keeps. `on_write` is awaited at each write."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.exchanges: list[Exchange] = []
        self.unsettled: list[int] = []

    async def on_write(self) -> None: ...

    async def write(
        self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
    ) -> Written:
        await self.on_write()
        self.kept += [page.url for page in pages]
        self.exchanges += exchanges
        return Written()

    async def settled(self, unsettled: Collection[int] = ()) -> None:
        self.unsettled += unsettled

    async def set_aside(self) -> Callable[[Collection[int]], Awaitable[None]]:
        raise AssertionError("there is one node only")

    async def take_back(self, urls: Sequence[LeasedUrl]) -> None:
        for url in urls:
            self.kept.remove(url.entry.url)


@contextlib.asynccontextmanager
async def committing(
    shared: Runtime, frontier: Frontier, sink: PageSink, watches_runs: bool = False
) -> AsyncIterator[Committer]:
    """A committer that runs."""
    committer = Committer(shared, frontier, sink, RecentUrls(100), HeldLeases(shared))
    tasks = [asyncio.create_task(committer.run())]
    if watches_runs:
        tasks.append(asyncio.create_task(committer.watch_runs()))
    yield committer
    for task in tasks:
        task.cancel()


async def leased_from(frontier: Frontier, lease_end: float = float("inf"), domain: str = "site.test") -> LeasedDomain:
    ((answer,), _) = await frontier.lease([frontier.shard_of(domain)], 1, "me", 1)
    return LeasedDomain(answer.leases[0], lease_end, 0.0)


def result_of(
    leased: LeasedDomain, links: Sequence[Entry] = (), entry: Entry | None = None, body: bytes = SAME
) -> Result:
    """The result of the first URL of `leased`, or of `entry`."""
    entry = entry or leased.lease.entries[0]
    made = page(exchange(entry.url.rpartition("/")[2], body))
    return Result(leased, SettledUrl(entry, Outcome.DONE, "200"), made, links)


def test_the_next_visit_of_a_page_without_its_body_has_no_condition() -> None:
    planned = msgspec.structs.replace(page(exchange("a", SAME)), visit="new", next_at=5.0, visit_state="ab")
    result = Result(leased_domain(), SettledUrl(PAGE, Outcome.DONE, "200"), planned)
    settled = SettledUrl(PAGE, Outcome.DONE, "200")
    assert result.as_written(Written(bodiless={PAGE.url: "cd"})).settled == with_next_visit(settled, "new", 5_000, "cd")


async def test_links_are_pushed_before_the_page_is_durable_and_it_is_settled_last(
    store: RedisStore, crawl_name: str
) -> None:
    """A crash between any two steps costs a second fetch, never a page or a link."""

    class WatchingSink(Sink):
        """Refuses the first call, and reads the crawl's counters at each call."""

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[str, Counts]] = []

        async def on_write(self) -> None:
            self.seen.append(("write", await counters.counts()))
            if len(self.seen) == 1:
                raise SinkFull("no room yet")

        async def settled(self, unsettled: Collection[int] = ()) -> None:
            self.seen.append(("settled", await counters.counts()))

    frontier = await make_frontier(store, crawl_name, ManualTime())
    await frontier.push([PAGE])
    sink, counters = WatchingSink(), Counters(store, frontier.keys)
    async with committing(await on_a_clock(ManualTime()), frontier, sink) as committer:
        await committer.add(result_of(await leased_from(frontier), [LINK]))
        await committer.flush()
    seen = [(step, counts.accepted, counts.done) for step, counts in sink.seen]
    assert seen == [("write", 2, 0), ("write", 2, 0), ("settled", 2, 1)]


async def test_no_domain_has_turns_while_its_results_have_to_wait(store: RedisStore, crawl_name: str) -> None:
    """What is fetched during an outage that outlasts the lease is fetched again."""

    class FullSink(Sink):
        held_up: list[bool]

        async def on_write(self) -> None:
            self.held_up.append(committer.holds_up(leased))
            assert committer.lacks_room == bool(self.held_up[1:])  # in which the time of the crawl does not count
            if len(self.held_up) == 1:
                raise SinkFull("no room yet")

    frontier, shared, sink = (
        await make_frontier(store, crawl_name, ManualTime()),
        await on_a_clock(ManualTime()),
        FullSink(),
    )
    sink.held_up = []
    await frontier.push([PAGE])
    leased = await leased_from(frontier)
    async with committing(shared, frontier, sink) as committer:
        shared.retry.failed(RedisAway("gone"))
        assert committer.holds_up(leased)
        shared.retry.answered()
        await committer.add(result_of(leased))
        await committer.flush()
        assert sink.held_up == [False, True]
        assert not committer.holds_up(leased)


async def test_the_counters_include_bodies_that_were_archived_before(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a lease on four URLs, three of which answer with the same body,
    frontier = await make_frontier(store, crawl_name, ManualTime())
    bodies = {"a": SAME, "b": SAME, "c": b"another one " * 200, "d": SAME}
    await frontier.push(Entry(f"https://site.test/{name}", "site.test") for name in bodies)
    leased = await leased_from(frontier)
    # When their pages are committed, in two groups, to an archive that remembers bodies,
    archive = Archive(settings(tmp_path))
    await archive.start()
    async with committing(await on_a_clock(ManualTime()), frontier, archive) as committer:
        for number, entry in enumerate(leased.lease.entries):
            await committer.add(result_of(leased, entry=entry, body=bodies[entry.url[-1]]))
            if number == 1:
                await committer.flush()
        await committer.flush()
    await archive.stop()
    # Then the counters know that two of them brought nothing new.
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.done, counts.duplicates) == (4, 2)


@pytest.mark.parametrize("ends_during_the_write", [False, True])
async def test_nothing_is_settled_after_the_lease_ended(
    store: RedisStore, crawl_name: str, ends_during_the_write: bool
) -> None:
    """Others may have given this replica up by then, with its share of the page budget, and found the end of the crawl."""

    class SlowSink(Sink):
        async def on_write(self) -> None:
            time.ms += 20_000 if ends_during_the_write else 0

    # Given a page, its link and a robots.txt, fetched under a lease that Redis still has,
    time, sink = ManualTime(), SlowSink()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([PAGE])
    leased, robots = await leased_from(frontier, time.monotonic() + 10), exchange("robots.txt", b"")
    shared = await on_a_clock(time)
    committer = Committer(shared, frontier, sink, RecentUrls(10), HeldLeases(shared))
    await committer.add(result_of(leased, [LINK]))
    await committer.add(Result(leased, exchange=robots))
    # When the lease ends before the commit, or while the sink is writing,
    time.ms += 0 if ends_during_the_write else 20_000
    running = asyncio.create_task(committer.run())
    await committer.flush()
    running.cancel()
    # Then the URL is not settled, and the sink does not keep the page, but the robots.txt;
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.accepted, counts.done) == (2 if ends_during_the_write else 1, 0)
    assert len(sink.kept) == len(sink.unsettled) == ends_during_the_write
    assert sink.exchanges == [robots]
    # and another replica fetches the URL again.
    assert PAGE.url in await leased_by_another(frontier, time)


async def leased_by_another(frontier: Frontier, time: ManualTime) -> set[str]:
    """The URLs that another replica gets when the leases here have expired."""
    for _ in range(2):
        time.ms += 60_000
        ((answer,), _) = await frontier.lease([0], 2, "other", 1)
    return {entry.url for lease in answer.leases for entry in lease.entries}


async def test_a_lease_that_has_ended_is_not_renewed(store: RedisStore, crawl_name: str) -> None:
    # Given a lease that ended during an outage, and that Redis still has,
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([PAGE])
    leased, shared = await leased_from(frontier, time.monotonic() + 10), await on_a_clock(time)
    time.ms += 60_000
    # When the renewal is repeated after the outage,
    committer = Committer(shared, frontier, Sink(), RecentUrls(10), HeldLeases(shared))
    await committer.renew([leased])
    # Then the lease is over here as well as in Redis.
    assert not leased.holds(time.monotonic())
    assert PAGE.url in await leased_by_another(frontier, time)


class RestartedStore(CountingStore):
    """A server with a run ID that a test may change."""

    run = "before"

    def run_of(self, key: str) -> str:
        return self.run

    def runs(self) -> str:
        return self.run


async def test_links_that_redis_forgot_in_a_restart_are_pushed_again_before_their_page_is_settled(
    store: RedisStore, crawl_name: str
) -> None:
    class ForgettingSink(Sink):
        """While a group is written, Redis is restarted so fast that no call fails, and forgets what was pushed."""

        async def on_write(self) -> None:
            shard = frontier.keys.shards[frontier.shard_of(link.domain)]
            keys = (shard.queue(link.domain), shard.domain(link.domain), shard.due, shard.seen(0))
            fields = ("accepted", "seen", "buckets", "domains")
            await restarted.send([command("DEL", *keys), command("HDEL", shard.stats, *fields)])
            restarted.run = "after"

    restarted = RestartedStore(store)
    frontier = await make_frontier(restarted, crawl_name, ManualTime(), shards=2)
    links = (Entry(f"https://other{number}.test/", f"other{number}.test") for number in range(100))
    link = next(link for link in links if frontier.shard_of(link.domain) != frontier.shard_of("site.test"))
    await frontier.push([PAGE])
    leased = await leased_from(frontier)
    async with committing(await on_a_clock(ManualTime()), frontier, ForgettingSink()) as committer:
        await committer.add(result_of(leased, [link]))
        await committer.flush()
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.accepted, counts.done) == (2, 1)


async def test_a_page_whose_lease_the_server_has_lost_is_settled(store: RedisStore, crawl_name: str) -> None:
    """As far as it was fetched when that was noticed. Nothing more is fetched under the lease."""
    restarted = RestartedStore(store)
    frontier, sink = await make_frontier(restarted, crawl_name, ManualTime()), Sink()
    await frontier.push([PAGE])
    leased = await leased_from(frontier)
    keys = frontier.keys.of(PAGE.domain)
    await ask(store, "HSET", keys.owner, "token", leased.lease.token - 1)
    await ask(store, "RENAME", keys.inflight(PAGE.domain), keys.queue(PAGE.domain))
    await ask(store, "HDEL", keys.domain(PAGE.domain), "token")
    restarted.run = "after"
    async with committing(await on_a_clock(ManualTime()), frontier, sink) as committer:
        committer._held._domains[leased] = None
        await committer.repeat_lost_writes()  # and renew the lease in vain
        assert not leased.holds(0.0)
        await committer.add(result_of(leased))
        await committer.flush()
    assert (await Counters(store, frontier.keys).counts()).done == 1
    assert (sink.kept, sink.unsettled) == ([PAGE.url], [])


async def test_pages_are_taken_back_before_an_old_state_is_restored_from_the_lines(
    store: RedisStore, crawl_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is still in the archive counts as settled then, and would be removed all the same."""
    restarted = RestartedStore(store)
    frontier, sink = await make_frontier(restarted, crawl_name, ManualTime()), Sink()
    await frontier.push([PAGE])
    leased = await leased_from(frontier)
    lost = LeasedUrl(leased.lease.shard, PAGE.domain, leased.lease.token, PAGE)
    restored: list[list[str]] = []
    repeat = frontier.repeat_settlements

    async def repeat_one_in_vain(runs: Mapping[int, str]) -> list[LeasedUrl]:
        return [*await repeat(runs), lost]

    async def all_are_old(runs: Mapping[int, str]) -> dict[int, int]:
        return dict.fromkeys(runs, 1)

    async def restore(old: Mapping[int, int]) -> None:
        restored.append(list(sink.kept))

    monkeypatch.setattr(frontier, "repeat_settlements", repeat_one_in_vain)
    monkeypatch.setattr(frontier, "old_shards", all_are_old)
    async with committing(await on_a_clock(ManualTime()), frontier, sink) as committer:
        committer.restore_old = restore
        await committer.add(result_of(leased))
        await committer.flush()
        restarted.run = "after"
        await committer.repeat_lost_writes()
    assert restored == [[]]


@pytest.mark.parametrize(
    ("body_bytes", "links", "accepted"),
    [
        (100, 0, BACKLOG),
        (BACKLOG_BYTES // 4, 0, 4),
        (BACKLOG_BYTES * 2, 0, 1),
        (100, MANY_LINKS, BACKLOG_BYTES // (LINK_BYTES * MANY_LINKS + 100) + 1),
    ],
)
async def test_workers_wait_with_their_results_while_too_many_or_too_large_ones_wait(
    store: RedisStore, crawl_name: str, body_bytes: int, links: int, accepted: int
) -> None:
    time = ManualTime()
    frontier, shared = await make_frontier(store, crawl_name, time), await on_a_clock(time)
    committer = Committer(shared, frontier, Sink(), RecentUrls(10), HeldLeases(shared))
    leased = leased_domain(now=0.0, lease_end=float("inf"))
    result = Result(leased, links=[LINK] * links, exchange=exchange("robots.txt", bytes(body_bytes)))
    for _ in range(accepted):
        await asyncio.wait_for(committer.add(result), 60)
    waiting = asyncio.create_task(committer.add(result))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    running = asyncio.create_task(committer.run())
    await asyncio.wait_for(waiting, 60)
    running.cancel()


async def test_each_group_has_one_result_with_many_links_and_any_number_of_others(
    store: RedisStore, crawl_name: str
) -> None:
    """The pages of few domains with thousands of links would otherwise hold up those of all others."""

    class Groups(Sink):
        def __init__(self) -> None:
            super().__init__()
            self.groups: list[list[str]] = []

        async def write(
            self, pages: Sequence[Page], exchanges: Sequence[Exchange] = (), leased: Sequence[LeasedUrl] = ()
        ) -> Written:
            self.groups.append([one.domain for one in pages])
            return await super().write(pages, exchanges, leased)

    time, sink = ManualTime(), Groups()
    frontier = await make_frontier(store, crawl_name, time)
    links = [Entry(f"https://other.test/{number}", "other.test") for number in range(MANY_LINKS + 1)]
    async with committing(await on_a_clock(time), frontier, sink) as committer:

        async def add(domain: str, links: Sequence[Entry]) -> None:
            entry = Entry(f"https://{domain}/", domain)
            await frontier.push([entry])
            result = result_of(await leased_from(frontier, domain=domain), links)
            assert result.page is not None
            await committer.add(
                msgspec.structs.replace(result, page=msgspec.structs.replace(result.page, domain=domain))
            )

        many = [asyncio.create_task(add(f"many{number}.test", links)) for number in range(4)]
        few = [asyncio.create_task(add(f"few{number}.test", [])) for number in range(4)]
        await asyncio.gather(*many, *few)
        await committer.flush()
    assert sorted(domain for group in sink.groups for domain in group) == sorted(
        [f"many{number}.test" for number in range(4)] + [f"few{number}.test" for number in range(4)]
    )
    assert all(sum(domain.startswith("many") for domain in group) <= 1 for group in sink.groups)


# restarts of the server, which has lost the last writes


LINKS = [Entry(f"https://other{n}.test/", f"other{n}.test") for n in range(20)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    with ValkeyProcess(tmp_path, persistent=True) as process:
        yield process


def cut_log(folder: Path, size: int | None = None) -> int:
    """Cut the server's log to `size`. Returns its size."""
    (log,) = (folder / "appendonlydir").glob("*.incr.aof")
    if size is not None:
        with log.open("r+b") as file:
            file.truncate(size)
    return log.stat().st_size


async def frontier_on(store: Store, shards: int, replicas_ack: int = 0) -> tuple[Frontier, ServerClock]:
    server_clock, keys = ServerClock(SystemClock(), store.time_ms), CrawlKeys("news", shards, b"key".hex())
    await server_clock.refresh()
    await identify_shards(store, keys, range(shards))
    return Frontier(store, keys, server_clock, FrontierSettings(replicas_ack=replicas_ack), b"key"), server_clock


async def test_a_fast_restart_with_concurrent_calls_loses_no_link_and_no_page(
    server: ValkeyProcess, tmp_path: Path
) -> None:
    # Given a replica that has pushed and settled, in shards of which the server then loses the last writes,
    store = await connect(server.url)
    frontier, server_clock = await frontier_on(store, 8)
    shared, sink = runtime(SystemClock(), server_clock), Sink()
    await frontier.push([PAGE])
    size = cut_log(tmp_path)
    leased = await leased_from(frontier)
    async with committing(shared, frontier, sink, watches_runs=True) as committer:
        await committer.add(result_of(leased, LINKS))
        await committer.flush()
        counters = Counters(store, frontier.keys)
        before = await counters.counts()
        server.kill()
        cut_log(tmp_path, size)
        server.start()
        # when several calls meet the new process at once, of which each may be the first,
        await asyncio.gather(*(shared.retry.call(counters.done) for _ in range(8)))
        while frontier.replaced_runs():
            await shared.clock.sleep(0.05)
        # then everything is as it was.
        after = await counters.counts()
    assert (before.accepted, before.done) == (after.accepted, after.done) == (21, 1)
    assert after.domains_unleased == 20
    assert sink.kept == [PAGE.url]
    await store.close()


async def test_a_lease_is_not_returned_before_the_writes_under_it_are_repeated(
    server: ValkeyProcess, tmp_path: Path
) -> None:
    """Without the lease, Redis could not tell which of its URLs were settled, and would have them fetched again."""

    class RestartsAtRelease(CountingStore):
        """A way to a server that is restarted just before the first lease is returned. Its log ends at `size` then."""

        size = 0

        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            names = {call.script.name for call in calls if call.script}
            if "release" in names and not self.calls["release"]:
                server.kill()
                cut_log(tmp_path, self.size)
                server.start()
            return await super().send(calls)

    # Given a lease of which one of two URLs is settled,
    connected = await connect(server.url)
    store = RestartsAtRelease(connected)
    frontier, server_clock = await frontier_on(store, 1)
    await frontier.push([PAGE, Entry("https://site.test/b", "site.test")])
    leased = await leased_from(frontier)
    store.size = cut_log(tmp_path)
    async with committing(runtime(SystemClock(), server_clock), frontier, Sink()) as committer:
        await committer.add(result_of(leased))
        # when the server is restarted without the settlement while the lease is returned,
        committer.give_back(leased)
        await committer.flush()
    # then only the other URL is queued.
    counts = await Counters(store, frontier.keys).counts()
    assert (counts.accepted, counts.done, counts.domains_unleased, counts.domains_leased) == (2, 1, 1, 0)
    await connected.close()


class Recent(RecentUrls):
    """Counts how often it is cleared."""

    cleared = 0

    def clear(self) -> None:
        self.cleared += 1
        super().clear()


@pytest.mark.e2e
async def test_two_new_masters_without_replicas_take_the_last_writes() -> None:
    """With `replicas_ack`, a master without replicas acknowledges nothing."""
    with ValkeyCluster() as cluster:
        store, clock, seen = await connect(cluster.url), SystemClock(), list[WritesRepeated]()
        frontier, server_clock = await frontier_on(store, 32, replicas_ack=1)
        nodes = Nodes(store, frontier.keys)
        shared = runtime(clock, server_clock, retry=RedisRetry(clock, Events(), random.Random(1), nodes=nodes))
        shared.events.subscribe(seen.append, WritesRepeated)
        # Given a page on the first node, with links to all nodes,
        home = next(link for link in LINKS if nodes.of(frontier.shard_of(link.domain)) == cluster.masters[0].name)
        await frontier.push([home])
        leased = await leased_from(frontier, domain=home.domain)
        await frontier.push(LINKS)
        settled = SettledUrl(home, Outcome.DONE, "200")
        await frontier.settle([Settlement(leased.lease, 0, urls=[settled])])
        # when two nodes are replaced by masters without replicas,
        for master, replica in zip(cluster.masters[:2], cluster.replicas[:2], strict=True):
            cluster.kill(master)
            cluster.failover(replica, "TAKEOVER")
        async with asyncio.timeout(300):
            while len({nodes.of(shard) for shard in frontier.replaced_runs()}) < 2:
                with contextlib.suppress(RedisAway):
                    await frontier.look_for_new_runs()
                await clock.sleep(0.05)
            recent = Recent(100)
            committer = Committer(shared, frontier, Sink(), recent, HeldLeases(shared))
            replaced = frontier.replaced_runs()
            for replica in cluster.replicas[:2]:  # and hang first,
                cluster.suspend(replica)
            for _ in range(2):
                await committer.repeat_lost_writes()
            assert frontier.replaced_runs() == replaced
            for replica in cluster.replicas[:2]:
                cluster.resume(replica)
            # then both take the writes in the end.
            watching = asyncio.create_task(shared.retry.watch())
            while frontier.replaced_runs():
                await committer.repeat_lost_writes()
                await clock.sleep(0.05)
            watching.cancel()
        assert (sum(event.shards for event in seen), recent.cleared) == (len(replaced), 1)  # not once for each attempt
        counts = await Counters(store, frontier.keys).counts()
        assert (counts.accepted, counts.done) == (len(LINKS), 1)
        await store.close()
