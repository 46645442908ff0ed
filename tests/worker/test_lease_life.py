"""How a lease lives: taken, used and returned by whole replicas, with a real site, a real server and files on disk."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from crawler.app.engine import REPEATED_S, Dependencies, Engine, sink
from crawler.app.requests import fetch_settings
from crawler.events import Events, GroupCommitted
from crawler.fetch import library_privates
from crawler.fetch.client import Fetcher
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import FetchTable, FrontierTable, PolitenessTable, ReplicaTable, ScopeTable
from frontier.clock import SystemClock
from frontier.counters import Counters, Counts
from frontier.crawls import Crawl, create_crawl, open_crawl
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.scripts import RESERVE_BUDGET, Call, Reply
from frontier.store import RedisStore, connect
from tests.fetch.servers import FaultServer
from tests.frontier.helpers import CountingStore
from tests.valkey import ValkeyProcess
from tests.worker.test_commit import cut_log

DELAY_S, LEASE_S, INTERVAL_S, PATIENCE_S = 0.1, 1.0, 0.1, 180.0


class Site(FaultServer):
    """A site without robots.txt. Pages are answered while `may_answer` is set. `log`: (what happened, path, when)."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str, float]] = []
        self.may_answer = asyncio.Event()
        self.page_asked = asyncio.Event()

    def note(self, what: str, path: str) -> None:
        self.log.append((what, path, asyncio.get_running_loop().time()))

    async def _one(self, reader: StreamReader, writer: StreamWriter) -> bool:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
        self.note("asked", path)
        if path == "/robots.txt":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        self.page_asked.set()
        answering, leaving = asyncio.create_task(self.may_answer.wait()), asyncio.create_task(reader.read(1))
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        for waiting in (answering, leaving):
            waiting.cancel()
        await asyncio.gather(answering, leaving, return_exceptions=True)
        if not self.may_answer.is_set():
            self.note("hung up", path)
            return False
        await self.answer(writer)
        self.note("answered", path)
        return False


class CuttableStore(CountingStore):
    """A replica's way to Redis, which can be cut."""

    def __init__(self, store: RedisStore) -> None:
        super().__init__(store)
        self.is_cut = False
        self.run = ""  # the run ID that is shown instead of the server's
        self.after_permits: Callable[[], None] = lambda: None  # is called when the replica has returned its permits

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self.is_cut:
            raise RedisAway("cut by the test")
        replies = await super().send(calls)
        if any(call.script is RESERVE_BUDGET and int(call.arguments[5]) < 0 for call in calls):
            self.after_permits()
        return replies

    def node_of(self, key: str) -> str:
        return self._store.node_of(key)

    def run_of(self, key: str) -> str:
        return self.run or self._store.run_of(key)

    def runs(self) -> Hashable:
        return self._store.runs()

    def keep_time_by(self, key: str) -> None:
        self._store.keep_time_by(key)

    async def time_ms(self) -> float:
        if self.is_cut:
            raise RedisAway("cut by the test")
        return await super().time_ms()


class Cluster:
    """A crawl of one domain, whose pages `site` serves, and its replicas."""

    def __init__(self, store: RedisStore, crawl: Crawl, settings: CrawlSettings, folder: Path) -> None:
        self._store = store
        self._crawl = crawl
        self._settings = settings
        self._folder = folder
        self._committed = asyncio.Event()
        self._stopped: set[Engine] = set()

    @classmethod
    async def of(cls, store: RedisStore, crawl_name: str, site: Site, folder: Path) -> Cluster:
        settings = CrawlSettings(
            politeness=PolitenessTable(delay=DELAY_S, response_share=0.0, address_rate_limit="off"),
            scope=ScopeTable(kind="domains", domains=("a.test",), guess_sitemaps=False),
            frontier=FrontierTable(shards=1, lease=LEASE_S),
            fetch=FetchTable(host_map=(f"*.test=127.0.0.1:{site.port}",)),
        )
        await create_crawl(store, crawl_name, 1, settings.to_json())
        return cls(store, await open_crawl(store, crawl_name), settings, folder)

    @asynccontextmanager
    async def replica(self, name: str, until_empty: bool = False) -> AsyncIterator[tuple[Engine, CuttableStore]]:
        """A running replica and its way to Redis. It is stopped at the end, unless the test has done so."""
        library_privates.install()
        local = ReplicaTable(concurrency=4, interval=INTERVAL_S, out=self._folder / name)
        store, clock, events = CuttableStore(self._store), SystemClock(), Events()
        events.subscribe(lambda _: self._committed.set(), GroupCommitted)
        archive = sink(self._crawl.name, name, self._settings, local, events)
        http = Fetcher(fetch_settings(self._settings, max_idle=10), clock)
        deps = Dependencies(name, self._crawl, store, clock, random.Random(name), http, archive, events)
        engine = Engine(deps, self._settings, local)
        await engine.start(until_empty)
        try:
            yield engine, store
        finally:
            assert engine.tasks.failure is None
            await self.stop(engine, grace_s=0.0)

    async def stop(self, engine: Engine, grace_s: float) -> None:
        if engine not in self._stopped:
            self._stopped.add(engine)
            await engine.stop(grace_s)

    async def push(self, engine: Engine, *paths: str) -> None:
        await engine.frontier.push([Entry(f"http://a.test{path}", "a.test") for path in paths])

    async def counts(self) -> Counts:
        return await Counters(self._store, self._crawl.keys).counts()

    async def until_done(self, pages: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await self.counts()).done < pages:
                await self._committed.wait()
                self._committed.clear()

    def archived(self) -> list[str]:
        """The URLs of all pages in the output, of all replicas."""
        files = sorted(self._folder.rglob("*.pages.jsonl"))
        return sorted(json.loads(line)["url"] for file in files for line in file.read_text().splitlines())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site() as site:
        yield site


@pytest.fixture
async def cluster(store: RedisStore, crawl_name: str, site: Site, tmp_path: Path) -> Cluster:
    return await Cluster.of(store, crawl_name, site, tmp_path)


async def test_a_lease_that_is_lost_during_a_request_goes_to_another_replica(cluster: Cluster, site: Site) -> None:
    # Given a replica that waits for a response,
    async with cluster.replica("r1") as (first, link):
        await cluster.push(first, "/1")
        await asyncio.wait_for(site.page_asked.wait(), PATIENCE_S)
        site.page_asked.clear()
        # When it cannot renew its lease any more, and there is another replica,
        link.is_cut = True
        async with cluster.replica("r2"):
            # Then it cancels its request before the other one sends its own,
            await asyncio.wait_for(site.page_asked.wait(), PATIENCE_S)
            assert [what for what, path, _ in site.log if path == "/1"] == ["asked", "hung up", "asked"]
            # and the URL is settled once, though the first one comes back.
            link.is_cut = False
            site.may_answer.set()
            await cluster.until_done(1)
    counts = await cluster.counts()
    assert (counts.done, counts.leases_expired, counts.domains_unleased, counts.domains_leased) == (1, 1, 0, 0)
    assert cluster.archived() == ["http://a.test/1"]


@pytest.mark.parametrize("grace_s", [0.0, PATIENCE_S])
async def test_a_stop_during_a_request_waits_for_it_or_returns_its_url(
    cluster: Cluster, site: Site, grace_s: float
) -> None:
    # Given a replica that waits for a response, with another URL of the domain to follow,
    async with cluster.replica("r1") as (first, _):
        await cluster.push(first, "/1", "/2")
        await asyncio.wait_for(site.page_asked.wait(), PATIENCE_S)
        (_, path, _) = site.log[-1]
        # When it is stopped,
        stopping = asyncio.create_task(cluster.stop(first, grace_s))
        if grace_s:
            await asyncio.sleep(0)
            site.may_answer.set()
        await stopping
        # Then what it received in time is settled, and everything else is returned at once.
        counts = await cluster.counts()
        assert (counts.done, counts.domains_unleased, counts.domains_leased) == (bool(grace_s), 1, 0)
        assert site.log[-1][:2] == ("answered" if grace_s else "hung up", path)
    # And another replica does the rest.
    site.may_answer.set()
    async with cluster.replica("r2", until_empty=True) as (second, _):
        async with asyncio.timeout(PATIENCE_S):
            await second.ended.wait()
    assert (await cluster.counts()).done == 2
    assert cluster.archived() == ["http://a.test/1", "http://a.test/2"]


@pytest.mark.parametrize("at_the_end", [False, True])
async def test_a_restart_of_the_server_during_a_stop_leaves_one_record_of_each_page(
    site: Site, tmp_path: Path, at_the_end: bool
) -> None:
    """At first, the replica repeats the lost writes, though it has no lease any more. Later, nobody does, so the next start
    has to ask which of the pages are settled."""
    with ValkeyProcess(tmp_path, persistent=True) as server:
        store = await connect(server.url)
        cluster = await Cluster.of(store, "stop", site, tmp_path / "out")

        def restart() -> None:
            server.kill()
            cut_log(tmp_path, before)
            server.start()

        # Given a replica that has settled a page,
        async with cluster.replica("r1") as (first, link):
            await cluster.push(first, "/1")
            await asyncio.wait_for(site.page_asked.wait(), PATIENCE_S)
            before = cut_log(tmp_path)
            site.may_answer.set()
            await cluster.until_done(1)
            # when the server is restarted without that, at the beginning of the stop or after the last calls,
            if at_the_end:
                link.after_permits = restart
            else:
                restart()
            await cluster.stop(first, grace_s=PATIENCE_S)
        with contextlib.suppress(RedisAway):
            await cluster.counts()  # may meet the connection to the server that was killed
        # then no other replica fetches the page; or it is fetched again, and its first record is removed.
        name = "r1" if at_the_end else "r2"
        async with cluster.replica(name, until_empty=True) as (second, _), asyncio.timeout(PATIENCE_S):
            await second.ended.wait()
        assert (await cluster.counts()).done == 1
        assert [what for what, path, _ in site.log if path == "/1"] == ["asked", "answered"] * (1 + at_the_end)
        assert cluster.archived() == ["http://a.test/1"]
        await store.close()


async def test_a_crawl_does_not_end_soon_after_a_restart_of_the_server(cluster: Cluster, site: Site) -> None:
    """Other replicas may be about to repeat what it has lost."""
    loop = asyncio.get_running_loop()
    async with cluster.replica("r1", until_empty=True) as (engine, link):
        await cluster.push(engine, "/1")
        await asyncio.wait_for(site.page_asked.wait(), PATIENCE_S)
        link.run, restarted_at = "after", loop.time()
        site.may_answer.set()
        await asyncio.wait_for(engine.ended.wait(), PATIENCE_S)
        assert loop.time() >= restarted_at + REPEATED_S
