"""`crawler run`: replicas of a crawl, one in this process or several in their own, to the crawl's end or a signal."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from crawler import logs
from crawler.app.build import RECENT_URLS, seams
from crawler.app.embedded_valkey import EmbeddedValkey, open_store
from crawler.app.gc_schedule import paced_collection
from crawler.app.replica import Replica
from crawler.app.start_settings import OnDifference, settle
from crawler.app.supervisor import supervise
from crawler.errors import UserError
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.model import CrawlSettings, ReplicaSettings, Settings
from frontier.crawls import Crawl, open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore

EMBEDDED_INTERVAL_S = 1.0
"""On one machine a claim costs nothing, and a user waits for the first view."""

INTERRUPTED = 130
"""Exit code of a process that SIGINT cut short, as shells report it (128 + 2)."""


async def run_replica(
    crawl: str, settings: Settings, replicas: int, until_empty: bool, on_difference: OnDifference = "stop"
) -> int:
    """Run `replicas` replicas of an existing crawl, one in this process or several in their own. Raises SettingsDiffer, and
    starts nothing, if the crawl has other settings than were given."""
    if replicas > 1:
        return await _run_several(crawl, settings, replicas, until_empty, on_difference)
    settings = embedded_defaults(settings)
    async with open_store(settings.replica) as store:
        opened = await settle(store, await open_crawl(store, crawl), settings, on_difference)
        stored = CrawlSettings.from_json(opened.settings)
        replica = replica_of(store, opened, stored, settings.replica)
        async with paced_collection():
            return await run_until_stopped(replica, settings.replica.grace, until_empty)


def replica_of(store: RedisStore, crawl: Crawl, settings: CrawlSettings, local: ReplicaSettings) -> Replica:
    """A replica of `crawl`, ready to start. Raises UserError for settings that name what cannot be had."""
    return Replica(store, seams(crawl, store, settings, local), settings, local, RecentUrls(RECENT_URLS))


async def run_until_stopped(replica: Replica, grace_s: float, until_empty: bool) -> int:
    """Run until the crawl ends or a signal comes; a second signal cuts the grace short and makes the exit code 130."""
    signals = 0
    stopping: asyncio.Task[None] | None = None

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        replica.engine.ended.set()
        if signals > 1:
            replica.engine.hurry()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    await replica.start(until_empty)
    await replica.engine.ended.wait()
    stopping = asyncio.create_task(replica.stop(grace_s))
    await stopping
    failure = replica.engine.tasks.failure
    if isinstance(failure, (UserError, FrontierError)):
        raise failure
    if failure is not None:
        logs.logger.error("replica_failed", exc_info=failure, extra={"fields": {"replica": replica.id}})
        return 1
    return INTERRUPTED if signals > 1 else 0


async def _run_several(
    crawl: str, settings: Settings, replicas: int, until_empty: bool, on_difference: OnDifference
) -> int:
    async with open_store(settings.replica) as store:  # what is wrong is reported once, and not again by each replica
        await settle(store, await open_crawl(store, crawl), settings, on_difference)
    supervisor = supervise(crawl, settings, replicas, until_empty)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, supervisor.stop)
    async with contextlib.AsyncExitStack() as stack:
        if not settings.replica.redis:  # keep the server for replacements of a crashed only replica
            await stack.enter_async_context(EmbeddedValkey(settings.replica.data_dir))
        return await supervisor.run()


def embedded_defaults(settings: Settings) -> Settings:
    """`settings` with what is different where all replicas are on one machine, unless the user has set it."""
    local = settings.replica
    if local.redis or "interval" in local.model_fields_set:
        return settings
    return settings.model_copy(update={"replica": local.model_copy(update={"interval": EMBEDDED_INTERVAL_S})})
