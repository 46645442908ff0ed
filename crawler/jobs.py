"""What the commands do: open the store, seed a crawl, run replicas, and a whole crawl on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from crawler import logs
from crawler.assembly import assemble, check, scorer, url_rules
from crawler.control import Control
from crawler.display import follow, summarize
from crawler.embedded import EmbeddedValkey
from crawler.errors import UserError
from crawler.page import LinkKind
from crawler.replica import Replica
from crawler.seeds import Seed, read_seeds
from crawler.settings import CrawlSettings, ReplicaSettings, Settings
from crawler.supervisor import Supervisor, replica_command
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import Crawl, create_crawl, open_crawl, save_settings
from frontier.entries import Entry
from frontier.errors import BadInput, FrontierError
from frontier.queue import Frontier, FrontierSettings, Pushed
from frontier.store import RedisStore, connect

EMBEDDED_SHARDS = 64
"""Shards of a crawl on one machine: up to a handful of replicas, and few calls to poll them."""

EMBEDDED_INTERVAL_S = 1.0
"""On one machine a claim costs nothing, and a user waits for the first view."""

SEED_CHUNK = 5_000
"""Seeds pushed in one round trip."""

NO_SEEDS = "no seeds: give URLs, or a seed file with -f FILE"

INTERRUPTED = 130
"""Exit code of a process that SIGINT cut short, as shells report it (128 + 2)."""


@contextlib.asynccontextmanager
async def open_store(local: ReplicaSettings) -> AsyncIterator[RedisStore]:
    """The store that the settings name, or the embedded one. Raises FrontierError or UserError if it is not to be had."""
    async with contextlib.AsyncExitStack() as stack:
        url = local.redis
        if not url:
            server = await stack.enter_async_context(EmbeddedValkey(local.data_dir))
            url = server.url
        store = await connect(url)
        stack.push_async_callback(store.close)
        yield store


def _shards(settings: Settings) -> int:
    named = "shards" in settings.frontier.model_fields_set
    return settings.frontier.shards if named or settings.replica.redis else EMBEDDED_SHARDS


def embedded_defaults(settings: Settings) -> Settings:
    """`settings` with what is different where all replicas are on one machine, unless the user has set it."""
    local = settings.replica
    if local.redis or "interval" in local.model_fields_set:
        return settings
    return settings.model_copy(update={"replica": local.model_copy(update={"interval": EMBEDDED_INTERVAL_S})})


# seeds


async def seed_crawl(crawl: str, settings: Settings, urls: tuple[str, ...], files: tuple[Path, ...]) -> int:
    """Create the crawl if need be, and push the seeds. Returns the exit code."""
    check(settings.crawl)
    seeds = gather_seeds(settings.crawl, urls, files)
    if not seeds:
        raise UserError(NO_SEEDS)
    async with open_store(settings.replica) as store:
        opened = await create_crawl(store, crawl, _shards(settings), settings.crawl.to_json())
        pushed = await push_seeds(store, opened, seeds)
    Console().print(
        f"crawl {crawl}: {pushed.accepted:,} seeds queued, {pushed.known:,} known before"
        + (f", {pushed.capped:,} dropped by the domain cap" if pushed.capped else "")
    )
    return 0


def gather_seeds(settings: CrawlSettings, urls: Iterable[str], files: Iterable[Path]) -> list[Seed]:
    """The seeds of the command line and of the files. A broken line is reported and does not stop the rest; a broken URL
    on the command line raises UserError."""
    rules = url_rules(settings)
    seeds, errors = read_seeds(urls, rules)
    if errors:
        raise UserError(f"seed {errors[0].text!r}: {errors[0].reason}; write it as https://HOST/PATH")
    told = Console(stderr=True)
    for path in files:
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                found, errors = read_seeds(lines, rules)
        except OSError as error:
            raise UserError(f"seed file {path}: {error.strerror}") from error
        seeds += found
        for broken in errors:
            told.print(f"{path}:{broken.line}: {broken.reason}: {broken.text[:80]}", markup=False, highlight=False)
    return seeds


async def push_seeds(store: RedisStore, crawl: Crawl, seeds: list[Seed]) -> Pushed:
    """Queue the seeds at depth 0."""
    settings = CrawlSettings.from_json(crawl.settings)
    clock = ServerClock(SystemClock(), store.time_ms)
    await clock.refresh()
    frontier = Frontier(
        store,
        crawl.keys,
        clock,
        FrontierSettings(domain_cap=settings.limits.domain_cap),
        crawl.fingerprint_key,
    )
    score = scorer(settings.frontier.scorer)
    entries = [
        Entry(
            seed.url.href,
            seed.url.domain,
            score(seed.url.href, 0, LinkKind.ANCHOR) if seed.priority is None else seed.priority,
        )
        for seed in seeds
    ]
    parts = [await frontier.push(entries[at : at + SEED_CHUNK]) for at in range(0, len(entries), SEED_CHUNK)]
    return Pushed(*(sum(getattr(part, name) for part in parts) for name in ("accepted", "known", "capped")))


# replicas


async def run_replica(crawl: str, settings: Settings, replicas: int, until_empty: bool) -> int:
    """Run `replicas` replicas of an existing crawl, one in this process or several in their own."""
    if replicas > 1:
        return await _run_several(crawl, settings, replicas, until_empty)
    settings = embedded_defaults(settings)
    async with open_store(settings.replica) as store:
        opened = await open_crawl(store, crawl)
        stored = CrawlSettings.from_json(opened.settings)
        replica = Replica(store, opened, stored, settings.replica, assemble(crawl, stored, settings.replica))
        with calm_collector():
            return await run_until_told(replica, settings.replica.grace, until_empty)


@contextlib.contextmanager
def calm_collector() -> Iterator[None]:
    """Make the cycle collector look less often, and never at what is there by now and stays: to walk over that takes 40 ms
    of the event loop.

    Little of a crawl's garbage is in cycles (exceptions with their tracebacks): with the collector off, memory was the
    same after 5,000 pages and the CPU a page 7 % less. Most of that is to be had by these thresholds.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(10_000, 40, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()  # or the interpreter's end leaves it, and libraries in C complain of leaks


async def run_until_told(replica: Replica, grace_s: float, until_empty: bool) -> int:
    """Run until the crawl ends or a signal comes; a second signal cuts the grace short and makes the exit code 130."""
    signals = 0
    stopping: asyncio.Task[None] | None = None

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        replica.ended.set()
        if signals > 1:
            replica.hurry()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await replica.start(until_empty)
    await replica.ended.wait()
    stopping = asyncio.create_task(replica.stop(grace_s))
    await stopping
    if isinstance(replica.failure, (UserError, FrontierError)):
        raise replica.failure
    if replica.failure is not None:
        logs.log.error("replica_failed", exc_info=replica.failure, extra={"fields": {"replica": replica.id}})
        return 1
    return INTERRUPTED if signals > 1 else 0


async def _run_several(crawl: str, settings: Settings, replicas: int, until_empty: bool) -> int:
    async with open_store(settings.replica) as store:
        await open_crawl(store, crawl)  # what is wrong from the start is told once, and not by each replica again
    supervisor = _supervisor(crawl, settings, replicas, until_empty)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    async with contextlib.AsyncExitStack() as stack:
        if not settings.replica.redis:  # keep the server for replacements of a crashed only replica
            await stack.enter_async_context(EmbeddedValkey(settings.replica.data_dir))
        return await supervisor.run()


def _supervisor(
    crawl: str, settings: Settings, replicas: int, until_empty: bool, log_level: str | None = None
) -> Supervisor:
    """A supervisor of replicas of `crawl`. The Redis URL, which may hold a password, travels by the environment, where
    `ps` does not show it."""
    local = settings.replica
    words = ["--crawl", crawl, "--data-dir", str(local.data_dir), "--out", str(local.out)]
    words += ["--concurrency", str(local.concurrency), "--capacity", str(local.capacity), "--grace", str(local.grace)]
    if "interval" in local.model_fields_set:
        words += ["--interval", str(local.interval)]
    if until_empty:
        words.append("--until-empty")
    environment = {
        "CRAWLER_REPLICA__LOG": local.log,
        "CRAWLER_REPLICA__LOG_LEVEL": log_level or local.log_level,
    }
    if local.redis:
        environment["CRAWLER_REPLICA__REDIS"] = local.redis
    return Supervisor(replica_command(*words), replicas, SystemClock(), environment)


# a whole crawl on one machine


@dataclass(frozen=True, slots=True)
class CrawlJob:
    """`crawler crawl`: seed, run replicas until the crawl has ended, and tell what came of it."""

    crawl: str
    settings: Settings
    urls: tuple[str, ...]
    files: tuple[Path, ...]
    replicas: int
    show: bool

    async def run(self) -> int:
        logs.configure(self.settings.replica.log, "warning")
        check(self.settings.crawl)
        seeds = gather_seeds(self.settings.crawl, self.urls, self.files)
        local = self.settings.replica
        if not (seeds or local.redis or local.data_dir.exists()):
            raise UserError(NO_SEEDS)
        console = Console(stderr=True)
        async with open_store(self.settings.replica) as store:
            stored = await self._open(store, seeds)
            pushed = await push_seeds(store, stored, seeds)
            if not stored.created and not pushed.accepted:
                console.print(f"crawl [b]{self.crawl}[/b] goes on where it stopped")
            await Control(store, stored.keys).set("run")
            supervisor = _supervisor(self.crawl, self.settings, self.replicas, until_empty=True, log_level="warning")
            loop = asyncio.get_running_loop()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, supervisor.stop)
            code = await follow(store, self.crawl, supervisor, console if self.show else None)
            await summarize(store, self.crawl, self.settings.replica.out, Console())
        return code

    async def _open(self, store: RedisStore, seeds: list[Seed]) -> Crawl:
        """The crawl with the settings of this very command: on one machine the last word is the user's."""
        if not seeds:
            try:
                await open_crawl(store, self.crawl)
            except BadInput as error:
                raise UserError(NO_SEEDS) from error
        settings = self.settings.crawl.to_json()
        opened = await create_crawl(store, self.crawl, _shards(self.settings), settings)
        if not opened.created:
            await save_settings(store, self.crawl, settings)
            opened = await open_crawl(store, self.crawl)
        return opened
