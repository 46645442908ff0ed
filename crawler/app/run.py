"""`crawler run`: runs replicas until the crawl ends or a signal arrives. One replica runs in this process; several run in
processes of their own."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec.structs import replace

from crawler import logs
from crawler.app.build import RECENT_URLS, seams
from crawler.app.embedded_valkey import open_store
from crawler.app.gc_schedule import paced_collection
from crawler.app.installation_check import check_installed
from crawler.app.progress_log import progress_logged
from crawler.app.replica import Replica
from crawler.app.request_setup import RequestSetup, local_tables, request_setup
from crawler.app.reshard_wait import start, successor, was_frozen, was_resharded
from crawler.app.signals import on_end_of_supervisor, on_stop_signal
from crawler.app.start_settings import OnDifference, choose_and_adopt
from crawler.app.supervisor import supervise
from crawler.errors import UPLOADS_LEFT, UserError
from crawler.scope.recent_urls import RecentUrls
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, Settings
from crawler.settings.tables import ReplicaTable
from frontier.crawls import Crawl, mark_local, open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore

EMBEDDED_INTERVAL_S = 0.5
"""The peer interval on one machine, in seconds. Claims cost little there, and the user waits for the first view."""

TERMINAL_PROGRESS_S = 5.0
"""Seconds between two lines of progress in a terminal unless `replica.progress` is set. Logs that are kept need fewer."""

INTERRUPTED = 130
"""Exit code after a second signal, as shells report SIGINT (128 + 2)."""

BeforeStart = Callable[[RedisStore, Crawl], Awaitable[None]]


class RunOptions(NamedTuple):
    """How replicas run. `supervised`: stop when the process at the other end of standard input has ended.
    `before_start`: is called with the crawl before anything starts."""

    until_empty: bool
    on_difference: OnDifference = "stop"
    supervised: bool = False
    before_start: BeforeStart | None = None


async def run_replica(crawl: str, settings: Settings, replicas: int, options: RunOptions) -> int:
    """Run `replicas` replicas of an existing crawl, and return the exit code. Before starting anything, it raises
    SettingsDiffer if the settings differ from those of the crawl and `options.on_difference` is "stop", and what
    `options.before_start` raises."""
    setup = request_setup(settings)  # so that a key that cannot be used is reported before anything starts
    if replicas > 1:
        return await _run_several(crawl, settings, replicas, options)
    async with open_store(settings.replica) as store:
        opened, stored = await _open(store, crawl, settings, options)
        await mark_local(store, opened, local_tables(settings))
        replica = replica_of(store, opened, stored, local_settings(settings), setup)
        every_s = 0.0 if options.supervised else progress_s(settings)
        async with paced_collection(), progress_logged(store, crawl, every_s):
            return await run_until_stopped(replica, settings.replica.grace, options.until_empty, options.supervised)


async def _open(store: RedisStore, crawl: str, settings: Settings, options: RunOptions) -> tuple[Crawl, CrawlSettings]:
    """Open the crawl with the settings that apply to it. Raises UserError if this machine does not accept them."""
    opened = await choose_and_adopt(store, await open_crawl(store, crawl), settings, options.on_difference)
    stored = CrawlSettings.from_json(opened.settings)
    check_guarded(stored, accepted(settings))
    check_installed(stored)
    if options.before_start is not None:
        await options.before_start(store, opened)
    return opened, stored


def replica_of(
    store: RedisStore,
    crawl: Crawl,
    settings: CrawlSettings,
    local: ReplicaTable,
    setup: RequestSetup = RequestSetup(),
) -> Replica:
    """Return a replica of `crawl`, ready to start. `setup`: what its machine adds to its requests. Raises UserError if a
    hook or sink in the settings cannot be loaded."""
    reaching = seams(crawl, store, settings, local, setup=setup)
    return Replica(store, reaching, settings, local, RecentUrls(RECENT_URLS))


async def run_until_stopped(replica: Replica, grace_s: float, until_empty: bool, supervised: bool = False) -> int:
    """Run until the crawl ends, a signal arrives, or the supervisor ends (`supervised`), and return the exit code. Running
    turns have `grace_s` seconds to end; a second signal stops the wait, and the exit code is then 130. While the crawl is
    given another number of shards, wait, and continue as another replica."""
    signals, stopping = 0, asyncio.Event()

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        logs.log(logging.INFO, "stopping", replica=replica.id, waits_s=grace_s if signals == 1 else 0)
        stopping.set()
        replica.engine.ended.set()
        if signals > 1:
            replica.engine.skip_grace()

    on_stop_signal(on_signal)
    if supervised:
        on_end_of_supervisor(on_signal)
    following = await start(replica, until_empty, stopping)
    while following is not None:
        replica = following
        if signals:
            replica.engine.ended.set()
        await replica.engine.ended.wait()
        if signals or not await was_resharded(replica, stopping):
            await replica.stop(grace_s)
            break
        following = await successor(replica, grace_s, stopping)
        if following is not None:
            following = await start(following, until_empty, stopping)
    if following is None and signals:  # while it waited; what its engine has failed with is the reshard
        return INTERRUPTED if signals > 1 else 0
    failure = replica.engine.tasks.failure
    if await was_frozen(replica):  # while it was stopping, or the crawl had ended
        failure = None
    if isinstance(failure, (UserError, FrontierError)):
        raise failure
    if failure is not None:
        logs.logger.error("replica_failed", exc_info=failure, extra={"fields": {"replica": replica.id}})
        return 1
    if signals > 1:
        return INTERRUPTED
    return UPLOADS_LEFT if replica.engine.uploads_left else 0


async def _run_several(crawl: str, settings: Settings, replicas: int, options: RunOptions) -> int:
    supervisor = supervise(crawl, settings, replicas, options.until_empty)
    async with open_store(
        settings.replica
    ) as store:  # also keeps the server running while a crashed replica is replaced
        await _open(store, crawl, settings, options)  # so that an error is reported once, and not by each replica
        on_stop_signal(supervisor.stop)
        async with progress_logged(store, crawl, progress_s(settings)):
            return await supervisor.run()


def progress_s(settings: Settings) -> float:
    """Return the seconds between two lines about the progress of the crawl, 0 for none: they are for a terminal, where
    someone reads along."""
    if not sys.stderr.isatty():
        return 0.0
    return settings.replica.progress if settings.names("replica.progress") else TERMINAL_PROGRESS_S


def local_settings(settings: Settings) -> ReplicaTable:
    """Return the settings of a replica, with all that it accepts from Redis. With the embedded store, where all replicas
    are on one machine, the interval is shorter unless the user has set it. In a terminal, lines about the whole crawl
    (`progress_s`) replace those of replicas."""
    local = replace(settings.replica, accept=tuple(accepted(settings)))
    if sys.stderr.isatty():
        local = replace(local, progress=0.0)
    if local.redis or settings.names("replica.interval"):
        return local
    return replace(local, interval=EMBEDDED_INTERVAL_S)
