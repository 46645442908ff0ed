"""`crawler run`: runs replicas of a crawl, also the single ones that a supervisor starts."""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from crawler import logs
from crawler.app.crawl_settings import OnDifference
from crawler.app.requests import missing_tables
from crawler.app.signals import run_until_signal
from crawler.app.supervisor import check_free, count_up
from crawler.cli import options as option
from crawler.cli.main import run_to_exit
from crawler.cli.options import CrawlAccess, Number, command
from crawler.cli.output_folders import remember, shown
from crawler.errors import UserError
from crawler.settings.load import CrawlSettings, load, missing_contact
from crawler.sinks.files import check_output_folder
from frontier.control import Control
from frontier.crawls import Crawl
from frontier.errors import NoSuchCrawl, Resharding
from frontier.store import RedisStore


@command()
@option.crawl_name
@option.replicas
@option.out
@option.concurrency
@option.app
@option.sets("replica.capacity", "--capacity", type=Number(0.01), help="Weight in the distribution of shards.")
@option.listen
@click.option("--until-empty", is_flag=True, help="End when nothing is left, instead of waiting for more.")
@option.redis
@option.data_dir
@option.sets("replica.interval", "--interval", type=Number(0.1), metavar="SECONDS", help="Peer interval in seconds.")
@option.sets(
    "replica.grace",
    "--grace",
    type=Number(0),
    metavar="SECONDS",
    help="Seconds for requests in flight when a replica stops.",
)
@option.settings_file
@option.on_difference
@option.logging_options
def run(crawl: str, replicas: int, until_empty: bool, on_difference: OnDifference) -> None:
    """Run replicas of a crawl. They join replicas that already run on this or other machines.

    They run until they are stopped, and wait for more URLs when nothing is left, unless `--until-empty` is given.

    SIGTERM and Ctrl-C hand the work over and stop; a second one stops without waiting for requests in flight. Replicas
    use the crawl's settings. If a settings file or an environment variable differs from them, the command stops, unless
    `--keep-settings` or `--apply-settings` is given. A stopped crawl has to be resumed first.

    Example:

        crawler run --crawl news --redis redis://queue:6379/0 --replicas 4
    """
    from crawler.app.replica import run_replicas  # noqa: PLC0415 - the engine takes 0.4 s, and the help needs none

    access = CrawlAccess.given(crawl)
    settings, local = access.settings, access.settings.replica
    logs.configure(local.log_format, local.log_level)

    async def look(store: RedisStore, opened: Crawl) -> None:
        """Log where the output goes, and what may not be intended. Raises UserError for a stopped crawl."""
        control = Control(store, opened.keys)
        await control.refresh()
        resume = f"crawler resume {access.place}"
        if control.stopped:
            raise UserError(f"crawl {crawl!r} was stopped, so nothing was started; `{resume}` lets it run")
        if control.paused:
            logs.log(logging.WARNING, "crawl_paused", crawl=crawl, resume=resume)
        if problem := missing_contact(CrawlSettings.from_json(opened.settings)):
            logs.log(logging.WARNING, "no_contact", problem=problem)
        for problem in missing_tables(settings, opened.local):
            logs.log(logging.WARNING, "without_local_settings", problem=problem)
        others = remember(local, crawl)
        logs.log(logging.INFO, "output", folder=shown(local.out))
        if others:
            logs.log(logging.WARNING, "earlier_output", folders=", ".join(map(shown, others)))

    try:
        access.check_place()  # this and the next are checked before anything is created
        check_output_folder(local.out)
        check_free(count_up(local.listen, replicas))
        code = run_until_signal(
            run_replicas(
                crawl, settings, replicas, until_empty=until_empty, on_difference=on_difference, before_start=look
            )
        )
    except (NoSuchCrawl, Resharding):
        access.read()  # raises an error with the names of the crawls there, or with complete commands
        raise
    sys.exit(code)


def run_supervised() -> None:
    """Run a replica when a line arrives on standard input. The command line, which only `crawler.app.supervisor` writes, is
    `crawler run --when-told CRAWL`, with `--until-empty` after it if the replica is to end when nothing is left. The
    settings are in the environment."""
    run_to_exit(_run_when_told)


def _run_when_told() -> None:
    from crawler.app.replica import run_replicas  # noqa: PLC0415 - as above

    crawl, *options = sys.argv[3:]
    settings = load()
    logs.configure(settings.replica.log_format, settings.replica.log_level)
    if not sys.stdin.readline():  # the supervisor has ended
        sys.exit(1)
    # The supervisor has compared the settings.
    until_empty = "--until-empty" in options
    sys.exit(asyncio.run(run_replicas(crawl, settings, until_empty=until_empty, on_difference="keep", supervised=True)))
