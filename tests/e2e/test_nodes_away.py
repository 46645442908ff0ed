"""A node that hangs costs only its shards: whole replicas on three real servers, one of which is stopped for a while.

Each page links to the next page of its own domain and to pages of all other domains, so every page has links to the node
that hangs.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from asyncio import StreamWriter
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Self

import pytest

from crawler.app.engine import Dependencies, Engine, sink
from crawler.app.requests import fetch_settings
from crawler.events import Event, Events, RedisOutageBegan, RedisOutageEnded, ViewAdopted
from crawler.fetch import library_privates
from crawler.fetch.client import Fetcher
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import FetchTable, FrontierTable, PolitenessTable, ReplicaTable, ScopeTable
from frontier.clock import SystemClock
from frontier.counters import Counters
from frontier.crawls import create_crawl, open_crawl
from frontier.domains import shard_of
from frontier.entries import Entry
from frontier.keys import CrawlKeys
from frontier.peers import View
from frontier.store import Store
from tests.chaos.standstills import Standstill, longest, watch, watch_process
from tests.fetch.servers import FaultServer
from tests.several_servers import Servers, until

pytestmark = pytest.mark.long

NAME, SHARDS = "nodes", 12
DOMAINS_A_NODE, PAGES = 2, 50
DELAY_S = 0.2
HANGS_S = 7.0
"""Longer than the time limit of a round trip, which the first calls reach."""

LONG_S = 30.0
"""Several leases, and as long as a failover may take with the default `cluster-node-timeout`."""


LONGEST_GAP_S = 2.0
"""Without the time for which this process, or the server of the domains, waited for a CPU, which other tests used."""

PATIENCE_S = 300.0

Connect = Callable[[], AbstractAsyncContextManager[Store]]
"""A way to the servers, as one replica has it."""


class Web(FaultServer):
    """Serves pages "/0", "/1" ... of all domains, `PAGES` of each, or as many as `pages` says. `log`: the monotonic time,
    domain and path of each request. `standstills`: when this process, with the replicas in it, or a server stood still.
    `servers`: the process of each, by node."""

    def __init__(
        self,
        domains: list[str],
        servers: Mapping[str, int],
        pages: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self._servers = servers
        self.pages = {name: pages.get(name, PAGES) for name in domains}
        self.log: list[tuple[float, str, str]] = []
        self.standstills: list[Standstill] = []

    async def __aenter__(self) -> Self:
        self._tasks.add(asyncio.create_task(watch(partial(self._note, ""))))
        for node, pid in self._servers.items():
            self._tasks.add(asyncio.create_task(watch_process(pid, partial(self._note, node))))
        return await super().__aenter__()

    def _note(self, what: str, begin: float, end: float) -> None:
        self.standstills.append(Standstill(what, begin, end))

    async def answer(self, writer: StreamWriter) -> bool:
        head = self.requests[-1].decode()
        (path,) = re.findall(r"^GET (\S+)", head)
        (domain,) = re.findall(r"(?im)^host: ([^:\r]+)", head)
        self.log.append((time.monotonic(), domain, path))
        if path == "/robots.txt":
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return True
        number = int(path[1:]) + 1
        targets = [f"http://{name}/{number}" for name, pages in self.pages.items() if number < pages]
        body = f"<title>{domain}{path}</title>".encode() + b"".join(
            b'<a href="%b">there</a>' % url.encode() for url in targets
        )
        head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        return True

    def longest_gap(self, node: str, domains: list[str], since: float, until: float) -> float:
        """Seconds between two requests to `domains`, which are those of `node`, at most, from `since` to `until`, without
        those in which this process or the server stood still because the machine was busy."""
        times = [since, *(at for at, domain, _ in self.log if domain in domains and since < at < until), until]
        return max(after - before - longest(self.standstills, node, before, after) for before, after in pairwise(times))


class Crawl:
    """Replicas that crawl a web, each with its own way to the servers."""

    def __init__(
        self, connect: Connect, store: Store, folder: Path, address_rate_limit: Literal["off", "crawl"]
    ) -> None:
        self._connect = connect
        self.store = store
        self.keys = CrawlKeys(NAME, SHARDS)
        self._folder = folder
        self._limit = address_rate_limit
        names = [f"site{number}.test" for number in range(200)]
        self.by_node: dict[str, list[str]] = {}
        for name in names:
            of_node = self.by_node.setdefault(self.node_of(name), [])
            if len(of_node) < DOMAINS_A_NODE:
                of_node.append(name)
        self.domains = [name for of_node in self.by_node.values() for name in of_node]
        self.seen: dict[str, list[Event]] = {}

    def node_of(self, domain: str) -> str:
        return self.store.node_of(self.keys.shards[shard_of(domain, SHARDS)].base)

    @property
    def control(self) -> str:
        return self.store.node_of(self.keys.meta)

    @property
    def other(self) -> str:
        """A node without the control keys and without the rate limit of the web's address."""
        taken = {self.control, self.store.node_of(self.keys.rate_limit("127.0.0.1"))}
        return next(name for name in sorted(self.by_node) if name not in taken)

    async def create(self, port: int, replicas_ack: int = 0, lease: float = 30.0) -> None:
        self._settings = CrawlSettings(
            politeness=PolitenessTable(
                delay=DELAY_S, response_share=0.0, address_rate_limit=self._limit, address_burst=1
            ),
            scope=ScopeTable(kind="domains", domains=tuple(self.domains), guess_sitemaps=False),
            frontier=FrontierTable(shards=SHARDS, lease=lease, replicas_ack=replicas_ack),
            fetch=FetchTable(host_map=(f"*.test=127.0.0.1:{port}",)),
        )
        await create_crawl(self.store, NAME, SHARDS, self._settings.to_json())

    @asynccontextmanager
    async def replica(self, name: str) -> AsyncIterator[Engine]:
        library_privates.install()
        local = ReplicaTable(concurrency=8, interval=1.0, out=self._folder / name)
        async with self._connect() as store:
            crawl = await open_crawl(store, NAME)
            clock, events = SystemClock(), Events()
            self.seen[name] = []
            events.subscribe(self.seen[name].append, RedisOutageBegan, RedisOutageEnded, ViewAdopted)
            archive = sink(NAME, name, self._settings, local, events)
            http = Fetcher(fetch_settings(self._settings, max_idle=10), clock)
            deps = Dependencies(name, crawl, store, clock, random.Random(name), http, archive, events)
            engine = Engine(deps, self._settings, local)
            await engine.start(until_empty=True)
            try:
                yield engine
            finally:
                failure = engine.tasks.failure
                await engine.stop(5.0)
                assert failure is None

    def check_views(self) -> None:
        """Replicas that adopted a view of the same epoch have the same one, and none was without replicas."""
        views: dict[int, View] = {}
        for view in [event.view for seen in self.seen.values() for event in seen if isinstance(event, ViewAdopted)]:
            same = views.setdefault(view.epoch, view)
            assert (view.roster, view.owners) == (same.roster, same.owners)
        epochs = sorted(views)
        assert all(views[epoch].roster for epoch in epochs[2:])  # the first two are those of newcomers

    def archived(self) -> Counter[str]:
        files = sorted(self._folder.rglob("*.pages.jsonl"))
        return Counter(json.loads(line)["url"] for file in files for line in file.read_text().splitlines())


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    with Servers(tmp_path, 3) as servers:
        yield servers


def share_shards(*replicas: Engine) -> bool:
    """Whether each of `replicas` has adopted a view with all of them. Shards that are handed over while the node with the
    roster hangs wait for it."""
    return all(one.leases.view is not None and one.leases.view.replicas == len(replicas) for one in replicas)


async def hang(servers: Servers, node: str, seconds: float = HANGS_S) -> tuple[float, float]:
    """Have `node` hang for so long. Returns from when until when."""
    since = time.monotonic()
    servers.suspend(node)
    await asyncio.sleep(seconds)
    servers.resume(node)
    return since, time.monotonic()


async def crawl_whole(crawl: Crawl, web: Web, engines: list[Engine]) -> None:
    """The crawl ends by itself, and each page was requested and settled once."""
    async with asyncio.timeout(PATIENCE_S):
        for engine in engines:
            await engine.ended.wait()
    await check_whole(crawl, web, crawl.store)


async def check_whole(crawl: Crawl, web: Web, store: Store) -> None:
    """Each page was requested and settled once."""
    counts = await Counters(store, crawl.keys).counts()
    whole = len(crawl.domains) * PAGES
    assert (counts.accepted, counts.done, counts.open, counts.outbox) == (whole, whole, 0, 0)
    pages = Counter((domain, path) for _, domain, path in web.log if path != "/robots.txt")
    assert len(pages) == whole
    assert {page: times for page, times in pages.items() if times != 1} == {}


@pytest.mark.parametrize("what", ["shards only", "control keys", "rate limit"])
async def test_requests_to_domains_of_other_nodes_go_on(servers: Servers, tmp_path: Path, what: str) -> None:
    async with servers.store() as store:
        limit: Literal["off", "crawl"] = "crawl" if what == "rate limit" else "off"
        crawl = Crawl(servers.store, store, tmp_path / "out", limit)
        async with Web(crawl.domains, servers.pids) as web:
            await crawl.create(web.port)
            nodes = {"shards only": crawl.other, "control keys": crawl.control}
            node = nodes.get(what, store.node_of(crawl.keys.rate_limit("127.0.0.1")))
            async with crawl.replica("r1") as first, crawl.replica("r2") as second:
                await first.frontier.push([Entry(f"http://{name}/0", name) for name in crawl.domains])
                await until(lambda: len(web.log) > 5 * len(crawl.domains) and share_shards(first, second))
                # When a node hangs,
                since, back = await hang(servers, node)
                # Then the domains of each other node are requested as before,
                for name, domains in crawl.by_node.items():
                    gap_s = web.longest_gap(name, domains, since, back)
                    assert name == node or gap_s < LONGEST_GAP_S, f"no request to {name} for {gap_s:.1f} s"
                # the replicas say so,
                for name in ("r1", "r2"):
                    lost = {event.node for event in crawl.seen[name] if isinstance(event, RedisOutageBegan)}
                    assert lost == {node}
                # and when it is back, everything comes to its end by itself.
                await until(lambda: not first.runtime.retry.away_nodes and not second.runtime.retry.away_nodes)
                await crawl_whole(crawl, web, [first, second])
            crawl.check_views()
            found = crawl.archived()
            assert len(found) == len(crawl.domains) * PAGES
            assert set(found.values()) == {1}


async def test_a_crawl_goes_on_for_long_without_its_control_keys(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For several leases and many intervals, with the last view and the last estimate of the time."""
    async with servers.store() as store:
        crawl = Crawl(servers.store, store, tmp_path / "out", "off")
        others = {name: domains for name, domains in crawl.by_node.items() if name != crawl.control}
        enough = round((LONG_S + 10) / DELAY_S)
        async with Web(
            crawl.domains, servers.pids, {name: enough for domains in others.values() for name in domains}
        ) as web:
            await crawl.create(web.port, lease=5.0)
            async with crawl.replica("r1") as first, crawl.replica("r2") as second:
                await first.frontier.push([Entry(f"http://{name}/0", name) for name in crawl.domains])
                await until(lambda: len(web.log) > 5 * len(crawl.domains) and share_shards(first, second))
                since, back = await hang(servers, crawl.control, LONG_S)
                gaps = [web.longest_gap(name, domains, since, back) for name, domains in others.items()]
                with capsys.disabled():
                    print(f"\nno control keys for {back - since:.0f} s: longest gap of other nodes {max(gaps):.2f} s")
                assert max(gaps) < LONGEST_GAP_S
                async with asyncio.timeout(PATIENCE_S):
                    await asyncio.gather(first.ended.wait(), second.ended.wait())
            crawl.check_views()
        counts = await Counters(store, crawl.keys).counts()
        whole = sum(web.pages.values())
        assert (counts.accepted, counts.done, counts.open, counts.outbox) == (whole, whole, 0, 0)
        requested = Counter((domain, path) for _, domain, path in web.log if path != "/robots.txt")
        twice = {domain for (domain, _), times in requested.items() if times != 1}
        assert twice <= set(crawl.by_node[crawl.control])  # their leases ended meanwhile
        found = crawl.archived()
        assert len(found) == whole
        assert set(found.values()) == {1}
