"""The CPU of each stage of a page: what its native part takes alone, what the crawler takes, and their ratio.

    python -m tests.bench.stages [--rounds 5]

The pages are those of `tests.bench.throughput`, in two copies. A round crawls them from their roots with the crawler's own
parts, one stage after the other for a group of up to 64 pages. Each stage is followed by its *floor*: ISA-L alone on the
same bytes, OpenSSL's SHA-1 alone, PCRE2 alone, a plain write, a socket that sends and receives as many bytes. A row without
a floor is the rest of a whole whose other parts have rows. Then come two crawls by a replica: of the same pages, and of one
page, which is what a start takes. What a page takes there beyond the sum is the worker, the event loop, politeness,
metrics, the garbage collector, and caches that are colder than in a loop over one stage.

CPU of the crawler's thread, without nginx and Valkey, at full speed (`tests.bench.speed`); medians of the rounds, and the
lowest and highest ratio. It ends within a minute. docs/explanation/speed.md has the last result.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import hiredis

from crawler.fetch import library_patches
from crawler.fetch.address_policy import AddressPolicy
from crawler.fetch.client import Fetcher, FetchSettings
from crawler.page import Exchange
from frontier.calls import Call, Reply, packed, packed_words
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import create_crawl
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings, Lease, LeasedUrl, SettledUrl, Settlement
from frontier.store import RedisStore, connect
from tests.bench.docweb import DocWeb, serve
from tests.bench.measure import Figure, median
from tests.bench.speed import speedometer
from tests.bench.staged_page import ALL_RECORDS, WHOLE, Archiving, Reading, Spent, Visited, leased_urls
from tests.bench.throughput import by_socket, in_scratch, run_product
from tests.valkey import ValkeyProcess

COPIES = 2
GROUP = 64
"""Pages that are committed together, as many as in a crawl at full speed."""

RECEIVING, LEASING, PUSHING, SETTLING = "receiving head and body", "leasing", "pushing links", "settling"

READING = ("charset", "scanning for tags", "resolving links")
RECORDS = ("digest", "WARC records and their gzip", "CDXJ line", "JSON line")
REST = {"the rest of reading": (WHOLE, READING), "the rest of the records": (ALL_RECORDS, RECORDS)}
ROWS = (
    *(LEASING, RECEIVING, *READING, "the rest of reading", "scope and robots.txt", PUSHING),
    *(*RECORDS, "the rest of the records", "journal and files", SETTLING),
)
APART = "gzip of a response"
"""nginx sends these pages as they are, so this is not a part of the sum."""


class Floor:
    """Plain sockets: to the sites of the pages, and to Valkey at `path`."""

    def __init__(self, path: Path) -> None:
        self._sites: dict[str, socket.socket] = {}
        self._valkey = socket.socket(socket.AF_UNIX)
        self._valkey.connect(str(path))

    def close(self) -> None:
        for one in (*self._sites.values(), self._valkey):
            one.close()

    def fetch(self, exchange: Exchange, port: int) -> None:
        """Send the request of `exchange` once more, and receive as many bytes as before."""
        host = exchange.address
        if host not in self._sites:
            self._sites[host] = socket.create_connection((host, port))
        site, left = self._sites[host], len(exchange.response_head) + len(exchange.body)
        site.sendall(exchange.request_head)
        while left:
            left -= len(site.recv(1 << 16))

    def ask(self, question: bytes, replies: int) -> None:
        """Send `question` to Valkey, and read so many replies."""
        reader = hiredis.Reader()
        self._valkey.sendall(question)
        while replies:
            reader.feed(self._valkey.recv(1 << 16))
            while reader.gets() is not False:
                replies -= 1


class RecordedStore(RedisStore):
    """A store that remembers the calls of the last exchanges and their replies."""

    def __init__(self, store: RedisStore) -> None:
        self.__dict__.update(store.__dict__)
        self.exchanges: list[tuple[Sequence[Call], list[Reply]]] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies = await super().send(calls)
        self.exchanges.append((calls, replies))
        return replies

    def questions(self) -> list[bytes]:
        """For each exchange since the last call, commands that have as many bytes, and replies with as many bytes."""
        sizes = [(len(packed(calls)), _size(replies)) for calls, replies in self.exchanges]
        self.exchanges.clear()
        return [packed_words("SET", "sent", b"x" * sent) + packed_words("GETRANGE", "long", 0, n) for sent, n in sizes]


def _size(reply: Reply) -> int:
    if isinstance(reply, list):
        return sum(map(_size, reply)) + 4
    return len(reply) + 6 if isinstance(reply, bytes) else 4


class StagedCrawl:
    """A crawl of `web` in one loop, group after group."""

    def __init__(self, web: DocWeb, store: RecordedStore, frontier: Frontier, fetcher: Fetcher, floor: Floor) -> None:
        self._web = web
        self._store = store
        self._frontier = frontier
        self._fetcher = fetcher
        self._floor = floor
        self._reading = Reading()
        self._shards = sorted({frontier.shard_of(address) for address in web.addresses})
        self.spent = Spent()

    async def run(self, archiving: Archiving) -> None:
        """Crawl all pages. `archiving` keeps them."""
        await self._frontier.push(Entry(url, url.split("/")[2].split(":")[0]) for url in self._web.address_seeds)
        self._store.questions()
        while leases := await self._lease():
            for group in _groups(leases):
                visited = await self._fetch(group)
                html = [one for one in visited if one.content_type.startswith("text/html")]
                pages, links = self._reading.read(self.spent, html)
                await self._push(links)
                archiving.write(self.spent, html, pages)
                self.spent.pages += len(html)
                await self._settle(leases, group)
            await self._give_back(leases)

    async def _lease(self) -> list[Lease]:
        with self.spent.on(self.spent.ours, LEASING):
            replies, _ = await self._frontier.lease(self._shards, 1, "bench", 16)
        self._ask(LEASING)
        return [lease for reply in replies for lease in reply.leases]

    def _ask(self, stage: str) -> None:
        questions = self._store.questions()
        with self.spent.on(self.spent.floor, stage):
            for question in questions:
                self._floor.ask(question, 2)

    async def _fetch(self, group: Sequence[LeasedUrl]) -> list[Visited]:
        sites: dict[str, list[LeasedUrl]] = {}
        for one in group:
            sites.setdefault(one.domain, []).append(one)

        async def in_turn(part: list[LeasedUrl]) -> list[Visited]:
            return [Visited(one, await self._fetcher.fetch(one.entry.url)) for one in part]

        with self.spent.on(self.spent.ours, RECEIVING):
            visited = list(chain(*await asyncio.gather(*map(in_turn, sites.values()))))
        with self.spent.on(self.spent.floor, RECEIVING):
            for exchange in [one.exchange for one in visited]:
                self._floor.fetch(exchange, self._web.port)
        return visited

    async def _push(self, links: Sequence[Entry]) -> None:
        with self.spent.on(self.spent.ours, PUSHING):
            await self._frontier.push(links)
        self._ask(PUSHING)

    async def _settle(self, leases: Sequence[Lease], group: Sequence[LeasedUrl]) -> None:
        by_domain = {lease.domain: lease for lease in leases}
        with self.spent.on(self.spent.ours, SETTLING):
            settlements: dict[str, Settlement] = {}
            for one in group:
                of = settlements.setdefault(one.domain, Settlement(by_domain[one.domain], 0))
                of.urls.append(SettledUrl(one.entry, "done", "200"))
            replies = await self._frontier.settle(list(settlements.values()))
        assert not any(reply.stale for reply in replies)
        self._ask(SETTLING)

    async def _give_back(self, leases: Sequence[Lease]) -> None:
        with self.spent.on(self.spent.ours, SETTLING):
            await self._frontier.release([Settlement(lease, 0) for lease in leases])
        self._ask(SETTLING)


def _groups(leases: Sequence[Lease]) -> list[list[LeasedUrl]]:
    """The URLs of `leases` in groups, the sites taking turns."""
    turns = chain(*zip_longest(*map(leased_urls, leases)))
    urls = [url for url in turns if url is not None]
    return [urls[at : at + GROUP] for at in range(0, len(urls), GROUP)]


async def _round(web: DocWeb, folder: Path) -> Spent:
    settings = FetchSettings(
        "peercrawl/bench", addresses=AddressPolicy(ports=frozenset({web.port}), allow_private=True)
    )
    fetcher = Fetcher(settings, SystemClock())
    await fetcher.start()
    with ValkeyProcess(folder, persistent=False) as valkey:
        store = RecordedStore(await connect(valkey.url))
        crawl = await create_crawl(store, "crawl", 64, b"{}")
        clock = ServerClock(SystemClock(), store.time_ms)
        await clock.refresh()
        frontier = Frontier(store, crawl.keys, clock, FrontierSettings(delay_ms=0), crawl.fingerprint_key)
        floor, archiving = Floor(valkey.socket), Archiving(folder)
        floor.ask(packed_words("SET", "long", b"x" * (1 << 20)), 1)
        staged = StagedCrawl(web, store, frontier, fetcher, floor)
        try:
            await staged.run(archiving)
        finally:
            archiving.close()
            floor.close()
            await fetcher.stop(1.0)
            await store.close()
    return staged.spent


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: microseconds a page of the floor and of ours, at full speed, in each round. No floor: the stage
    has no native part of its own."""

    name: str
    floor: list[float]
    ours: list[float]

    def __str__(self) -> str:
        text = f"{self.name:30} {median(self.floor):7.1f} " if any(self.floor) else f"{self.name:30} {'':7} "
        text += f"{median(self.ours):7.1f}"
        if not any(self.floor):
            return text
        ratios = [ours / floor for floor, ours in zip(self.floor, self.ours, strict=True)]
        return f"{text} {median(ratios):6.2f}  {min(ratios):.2f} to {max(ratios):.2f}"


def measure(rounds: int) -> list[Spent]:
    """What each of `rounds` has spent."""
    speedometer()
    library_patches.install()
    with serve(COPIES) as web:
        return [in_scratch(lambda folder: asyncio.run(_round(web, folder))) for _ in range(rounds)]


def lines(rounds: Sequence[Spent]) -> list[Line]:
    """The lines of the stages, and their sum."""
    speeds = [speedometer().mean(spent.since, spent.until) for spent in rounds]

    def line(name: str) -> Line:
        return Line(
            name,
            [spent.floor[name] * speed / spent.pages * 1e6 for spent, speed in zip(rounds, speeds, strict=True)],
            [_of(spent, name) * speed / spent.pages * 1e6 for spent, speed in zip(rounds, speeds, strict=True)],
        )

    table = [line(name) for name in ROWS]
    sums = [[sum(part) for part in zip(*(getattr(one, side) for one in table), strict=True)] for side in SIDES]
    return [*table, Line("the sum", *sums), line(APART)]


SIDES = ("floor", "ours")


def _of(spent: Spent, name: str) -> float:
    whole, parts = REST.get(name, (name, ()))
    return spent.ours[whole] - sum(spent.ours[part] for part in parts)


@dataclass(frozen=True, slots=True)
class WholeCrawl:
    """CPU of a crawl by a replica at full speed: microseconds a page without the start, and seconds of the start."""

    us_a_page: float
    start_s: float


def whole_crawl(copies: int) -> WholeCrawl:
    """Crawl the same pages with a replica."""
    with serve(copies) as web:
        web.fetched()
        one, _ = in_scratch(partial(run_product, web, by_socket, more="[limits]\nmax_pages = 1\n"))
        run, _ = in_scratch(partial(run_product, web, by_socket))
    start_s = one.usage.cpu_s * one.speed
    return WholeCrawl((run.usage.cpu_s * run.speed - start_s) / run.pages * 1e6, start_s)


def short() -> list[Figure]:
    """For the table of all benchmarks."""
    *_, total, _ = lines(measure(1))
    floor, ours = median(total.floor), median(total.ours)
    return [
        Figure("stages", "native parts of the stages of a page", floor, "us"),
        Figure("stages", "the stages of a page", ours, "us"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    table = lines(measure(options.rounds))
    print(f"{'us of CPU a page':30} {'floor':>7} {'ours':>7} {'ratio':>6}  lowest to highest")
    print("\n".join(map(str, table)), flush=True)
    whole, total = whole_crawl(2 * COPIES), median(table[-2].ours)
    print(
        f"{'a page of a whole crawl':30} {'':7} {whole.us_a_page:7.1f}, {total / whole.us_a_page:.0%} of it in these ",
        end="",
    )
    print(f"stages; its start took {whole.start_s:.2f} s")


if __name__ == "__main__":
    main()
