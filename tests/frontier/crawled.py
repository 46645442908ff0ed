"""A crawl with URLs in every state, for tests of what happens to all of it."""

from __future__ import annotations

from collections.abc import Sequence

from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.crawls import Crawl, create_crawl, open_crawl
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import Reshard
from frontier.scripts import Call, Reply, Script
from frontier.settle import SettledUrl, Settlement, retry, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, reshard_crawl

DOMAINS = [f"d{number}.test" for number in range(40)]
PAGES = 6
KNOWN_MS = 10**8


def silent(step: str, done: int, total: int) -> None: ...


class Stopped(Exception):
    """The process was killed."""


class Kills(CountingStore):
    """Kills the process before its round trip number `after`, not counting looks whether all leases have ended."""

    def __init__(self, store: RedisStore, after: int) -> None:
        super().__init__(store)
        self.left = after

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.left -= not all(call.script is None and call.arguments[0] in ("ZCARD", "EXISTS") for call in calls)
        if self.left < 0:
            raise Stopped
        return await super().send(calls)


class KillsBefore(CountingStore):
    """Kills the process before it calls `script` for the time number `after`, counted from 0."""

    def __init__(self, store: RedisStore, script: Script, after: int = 0) -> None:
        super().__init__(store)
        self._script = script
        self.left = after

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.left -= calls[0].script is self._script
        if self.left < 0:
            raise Stopped
        return await super().send(calls)


class Crawled:
    """A crawl with URLs in every state. `time`: the only clock."""

    def __init__(self, store: RedisStore, name: str, time: ManualTime) -> None:
        self.store, self.name, self.time = store, name, time
        self.clock = ServerClock(time, time.read_ms)

    async def open(self) -> Frontier:
        crawl = await open_crawl(self.store, self.name)
        settings = FrontierSettings(batch=2, delay_ms=1, pack_above=4)
        return Frontier(self.store, crawl.keys, self.clock, settings, crawl.fingerprint_key)

    async def begin(self, shards: int) -> None:
        await self.clock.refresh()
        await create_crawl(self.store, self.name, shards, b"{}")
        frontier = await self.open()
        pages = [Entry(f"https://{domain}/{page}", domain) for domain in DOMAINS for page in range(PAGES)]
        await frontier.push(pages)
        leased, _ = await frontier.lease(range(shards), 1, "r1", 100)
        for number, lease in enumerate(lease for reply in leased for lease in reply.leases):
            if number % 4 == 3:
                continue  # its holder was killed
            done = SettledUrl(lease.entries[0], "done", "ok")
            entries = [
                with_next_visit(done, "new", self.time.ms + KNOWN_MS, "57a7e0") if number % 4 == 2 else done,
                retry(lease.entries[1], "timeout", self.time.ms + 5_000, 0.0)
                if number % 4 == 1
                else SettledUrl(lease.entries[1], "dead", "gone"),
            ]
            await frontier.settle([Settlement(lease, self.time.ms + 50, urls=entries, state=f"state {number}")])
        home = frontier.shard_of("far.test")
        await frontier.keep_links({(home + 1) % shards: [(home, Entry("https://far.test/", "far.test"))]})

    async def reshard(self, shards: int, store: RedisStore | CountingStore | None = None) -> None:
        crawl = await open_crawl(self.store, self.name, for_reshard=True)
        work = Reshard(store or self.store, crawl, (self.time, self.clock), shards, 1)
        await reshard_crawl(work, crawl, silent)

    async def freeze(self, shards: int) -> Reshard:
        crawl = await open_crawl(self.store, self.name)
        work = Reshard(self.store, crawl, (self.time, self.clock), shards, 1)
        await work.begin(silent)
        return work

    async def letters(self) -> set[tuple[str, str]]:
        """The domains and reasons of the dead letters."""
        frontier = await self.open()
        return {(one.domain, one.reason) async for one in DeadLetters(self.store, frontier.keys).find()}

    async def finish(self) -> list[str]:
        """Fetch everything that is left. Returns the URLs in the order in which they were fetched."""
        frontier, fetched = await self.open(), []
        counters = Counters(self.store, frontier.keys)
        for link in await frontier.outboxes.read(dict.fromkeys(range(len(frontier.keys.shards)), 0), 10):
            for one in link:
                assert one.target == frontier.shard_of(one.entry.domain)
                await frontier.push([one.entry])
            await frontier.outboxes.deliver(link)
        for _ in range(100):
            if await counters.has_ended():
                return fetched
            self.time.ms += 100_000
            leased, fenced = await frontier.lease(range(len(frontier.keys.shards)), 2, "r2", 100)
            assert not fenced
            for lease in (lease for reply in leased for lease in reply.leases):
                fetched += [entry.url for entry in lease.entries]
                urls = [SettledUrl(entry, "done", "ok") for entry in lease.entries]
                await frontier.settle([Settlement(lease, self.time.ms, urls=urls)])
        raise AssertionError("the crawl does not end")


async def meta(crawled: Crawled) -> Crawl:
    return await open_crawl(crawled.store, crawled.name, for_reshard=True)
