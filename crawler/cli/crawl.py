"""Commands that crawl: `crawl` on one machine, `seed` and `run` on a cluster, `demo` on a synthetic web."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from crawler import logs
from crawler.app.listen_addresses import check_free, count_up
from crawler.app.request_setup import missing_tables
from crawler.app.signals import run_until_signal
from crawler.app.start_settings import OnDifference
from crawler.cli.completion import scopes
from crawler.cli.crawl_access import CrawlAccess
from crawler.cli.output_folders import remember, shown
from crawler.cli.shared_options import CrawlName, DataDir, LogFormat, LogLevel, Redis, SettingsFile, flags
from crawler.errors import UserError
from crawler.settings.load import CrawlSettings, Settings, load, missing_contact
from crawler.sinks.output_folder import check_output_folder
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.errors import NoSuchCrawl, Resharding
from frontier.store import RedisStore

Urls = Annotated[list[str] | None, typer.Argument(help="Seed URLs.", show_default=False)]
SeedFile = Annotated[
    list[Path] | None,
    typer.Option("--file", "-f", help="Seed file with one URL per line. Can be repeated.", show_default=False),
]
MaxPages = Annotated[
    int | None, typer.Option(min=0, help="Maximum number of pages, over all replicas.", show_default=False)
]
MaxDepth = Annotated[
    int | None, typer.Option(min=0, max=255, help="Maximum number of links from a seed.", show_default=False)
]
Replicas = Annotated[int, typer.Option(min=1, max=256, help="Replicas on this machine.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for WARC files and JSON lines.", show_default=False)
]
Delay = Annotated[
    float | None,
    typer.Option(min=0, help="Seconds between requests to a domain; 0 only for your own sites.", show_default=False),
]
ScopeKind = Annotated[
    str | None,
    typer.Option("--scope", help="seeds, domains, hosts or any.", show_default=False, autocompletion=scopes),
]
HostMap = Annotated[
    list[str] | None,
    typer.Option(help="PATTERN=ADDRESS:PORT: connect to this address for matching hosts.", show_default=False),
]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NETWORK",
        help="Also allow connections to this private network or address (fetch.allow). Can be repeated.",
        show_default=False,
    ),
]
Port = Annotated[
    list[int] | None,
    typer.Option(
        min=1, max=65_535, help="Also allow URLs with this port (fetch.ports). Can be repeated.", show_default=False
    ),
]
Concurrency = Annotated[int | None, typer.Option(min=1, help="Requests in flight per replica.", show_default=False)]
OnPage = Annotated[
    list[str] | None,
    typer.Option(help="package.module:function to call with each page; see docs/how-to/extend.md.", show_default=False),
]
App = Annotated[
    str | None,
    typer.Option(
        help="package.module:router with the handlers of pages; see docs/how-to/extract-data.md.", show_default=False
    ),
]
Quietly = Annotated[bool, typer.Option("--quiet", "-q", help="No live display and no lines of progress.")]
Capacity = Annotated[
    float | None, typer.Option(min=0.01, help="Weight in the distribution of shards.", show_default=False)
]
Listen = Annotated[
    str | None,
    typer.Option(
        help="ADDRESS:PORT of the live page and /metrics; PORT alone: on loopback. Several replicas count up from it.",
        show_default=False,
    ),
]
KeepSettings = Annotated[bool, typer.Option("--keep-settings", help="If the settings differ, use those of the crawl.")]
ApplySettings = Annotated[
    bool,
    typer.Option(
        "--apply-settings",
        help="Change the crawl's settings to those from file, environment and flags. A file with settings of the crawl "
        "replaces all of them: those that it does not name return to their defaults.",
    ),
]
UntilEmpty = Annotated[
    bool, typer.Option("--until-empty", help="End when nothing is left, instead of waiting for more.")
]


def crawl(
    urls: Urls = None,
    file: SeedFile = None,
    max_pages: MaxPages = None,
    max_depth: MaxDepth = None,
    replicas: Replicas = 1,
    out: Out = None,
    delay: Delay = None,
    scope: ScopeKind = None,
    host_map: HostMap = None,
    allow: Allow = None,
    port: Port = None,
    concurrency: Concurrency = None,
    on_page: OnPage = None,
    app: App = None,
    listen: Listen = None,
    crawl: CrawlName = "crawl",
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    keep_settings: KeepSettings = False,
    apply_settings: ApplySettings = False,
    quiet: Quietly = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Crawl from URLs or seed files until nothing is left.

    No service is needed: the queue is stored in the data directory. Ctrl-C stops cleanly, and the same command resumes
    the crawl, also after `crawler stop` or `crawler pause`. Without any setting in a file, the environment or an option,
    the crawl keeps its own. Otherwise, if the settings, including defaults, differ from those of the crawl, the command
    shows the differences and stops, unless `--keep-settings` or `--apply-settings` is given. Seeds that the settings
    forbid are reported and not queued.

    [bold]Examples[/bold]

        crawler crawl https://example.com --max-pages 1000

        crawler crawl -f seeds.txt --replicas 4 --out pages

        crawler crawl http://localhost:3000 --allow 127.0.0.1 --allow ::1 --port 3000

        crawler crawl
    """
    from crawler.cli.seed_and_run import CrawlJob  # noqa: PLC0415 - it imports the display, which `crawler run` does not need

    otherwise = _on_difference(keep_settings, apply_settings)
    given = flags(
        limits={"max_pages": max_pages},
        scope={"max_depth": max_depth, "kind": scope},
        politeness={"delay": delay},
        fetch={"host_map": host_map},
        archive={"on_page": on_page},
        handlers={"app": app},
        replica={"redis": redis, "data_dir": data_dir, "out": out, "listen": listen}
        | {"concurrency": concurrency, "log_level": log_level, "log_format": log_format},
    )
    loaded = load(settings, given).adding(allow or (), port or ())
    job = CrawlJob(crawl, loaded, tuple(urls or ()), tuple(file or ()), replicas, not quiet, otherwise)
    _finish(job.run())


def seed(
    urls: Urls = None,
    file: SeedFile = None,
    again: Annotated[bool, typer.Option("--again", help="Queue seeds even if they were queued before.")] = False,
    app: App = None,
    allow: Allow = None,
    port: Port = None,
    crawl: CrawlName = "crawl",
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    keep_settings: KeepSettings = False,
    apply_settings: ApplySettings = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Create a crawl, or add seeds to an existing one. Running replicas pick them up.

    The first call sets the crawl's settings; later ones need none. If a settings file, flag or environment variable
    differs from them, the command stops, unless `--keep-settings` or `--apply-settings` is given. Seeds that the settings
    forbid are reported and not queued.

    [bold]Example[/bold]

        crawler seed --crawl news -f seeds.txt --redis redis://queue:6379/0
    """
    from crawler.cli.seed_and_run import SeedLists, seed_crawl  # noqa: PLC0415 - as above

    otherwise = _on_difference(keep_settings, apply_settings)
    given = flags(
        replica={"redis": redis, "data_dir": data_dir, "log_level": log_level, "log_format": log_format},
        handlers={"app": app},
    )
    loaded = load(settings, given).adding(allow or (), port or ())
    logs.configure(loaded.replica.log_format, loaded.replica.log_level)
    _finish(seed_crawl(crawl, loaded, SeedLists(tuple(urls or ()), tuple(file or ()), again), otherwise))


def run(
    crawl: CrawlName = "crawl",
    replicas: Replicas = 1,
    out: Out = None,
    concurrency: Concurrency = None,
    app: App = None,
    capacity: Capacity = None,
    listen: Listen = None,
    until_empty: UntilEmpty = False,
    redis: Redis = None,
    data_dir: DataDir = None,
    interval: Annotated[
        float | None, typer.Option(min=0.1, help="Peer interval in seconds.", show_default=False)
    ] = None,
    grace: Annotated[
        float | None, typer.Option(min=0, help="Seconds for requests in flight when a replica stops.")
    ] = None,
    settings: SettingsFile = None,
    keep_settings: KeepSettings = False,
    apply_settings: ApplySettings = False,
    log_level: LogLevel = None,
    log_format: LogFormat = None,
) -> None:
    """Run replicas of a crawl. They join replicas that already run on this or other machines.

    They run until they are stopped, and wait for more URLs when nothing is left, unless `--until-empty` is given.

    SIGTERM and Ctrl-C hand the work over and stop; a second one stops without waiting for requests in flight. Replicas
    use the crawl's settings. If a settings file or an environment variable differs from them, the command stops, unless
    `--keep-settings` or `--apply-settings` is given. A stopped crawl has to be resumed first.

    [bold]Example[/bold]

        crawler run --crawl news --redis redis://queue:6379/0 --replicas 4
    """
    from crawler.app.run import RunOptions, run_replica  # noqa: PLC0415 - importing the engine takes 0.4 s; only this command needs it

    otherwise = _on_difference(keep_settings, apply_settings)
    given = flags(
        replica={"redis": redis, "data_dir": data_dir, "out": out, "concurrency": concurrency, "capacity": capacity}
        | {"listen": listen, "interval": interval, "grace": grace, "log_level": log_level, "log_format": log_format},
        handlers={"app": app},
    )
    loaded = load(settings, given)
    logs.configure(loaded.replica.log_format, loaded.replica.log_level)
    access = CrawlAccess(crawl, redis, data_dir, settings, out)
    try:
        look = _before_run(access, loaded, replicas)
        _finish(run_replica(crawl, loaded, replicas, RunOptions(until_empty, otherwise, before_start=look)))
    except (NoSuchCrawl, Resharding):
        access.check()  # raises an error with the names of the crawls there, or with complete commands
        raise


def _before_run(access: CrawlAccess, loaded: Settings, replicas: int) -> Callable[[RedisStore, Crawl], Awaitable[None]]:
    """Check what can be checked before anything is created, and return what `run` does before replicas start: it logs where
    their output goes, and whether the crawl is paused. Both raise UserError; the second one also for a stopped crawl."""
    access.check_place()
    check_output_folder(loaded.replica.out)
    check_free(count_up(loaded.replica.listen, replicas))
    crawl, place = access.crawl, access.place

    async def look(store: RedisStore, opened: Crawl) -> None:
        control = Control(store, opened.keys)
        await control.refresh()
        if control.stopped:
            raise UserError(
                f"crawl {crawl!r} was stopped, so nothing was started; `crawler resume {place}` lets it run"
            )
        if control.paused:
            logs.log(logging.WARNING, "crawl_paused", crawl=crawl, resume=f"crawler resume {place}")
        if doubt := missing_contact(CrawlSettings.from_json(opened.settings)):
            logs.log(logging.WARNING, "no_contact", problem=doubt)
        for problem in missing_tables(loaded, opened.local):
            logs.log(logging.WARNING, "without_local_settings", problem=problem)
        others = remember(loaded.replica, crawl)
        logs.log(logging.INFO, "output", folder=shown(loaded.replica.out))
        if others:
            logs.log(logging.WARNING, "earlier_output", folders=", ".join(map(shown, others)))

    return look


def demo(
    replicas: Replicas = 3,
    pages: Annotated[int, typer.Option(min=10, help="Pages of the synthetic web.")] = 1_500,
    domains: Annotated[int, typer.Option(min=1, help="Domains of the synthetic web.")] = 60,
    out: Out = None,
) -> None:
    """Crawl a synthetic web on this machine's loopback, in less than a minute and without the internet.

    [bold]Example[/bold]

        crawler demo --replicas 3
    """
    from crawler.cli.demo import run_demo  # noqa: PLC0415 - no other command needs the synthetic web

    _finish(run_demo(replicas, pages, domains, out))


def _on_difference(keep: bool, apply: bool) -> OnDifference:
    """Return what to do if the settings differ from those of the crawl. Raises UserError if both flags are given."""
    if keep and apply:
        raise UserError("give either --keep-settings or --apply-settings, not both")
    return "keep" if keep else "apply" if apply else "stop"


def _finish(work: Coroutine[Any, Any, int]) -> None:
    code = run_until_signal(work)
    if code:
        raise typer.Exit(code)
