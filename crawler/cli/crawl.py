"""`crawler crawl`: crawls on one machine, from the seeds to the closing summary. `crawler try`: fetches one page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

from crawler import logs
from crawler.app.crawl_settings import OnDifference, check_installed, own_settings
from crawler.app.embedded_valkey import open_store
from crawler.app.requests import missing_tables, request_setup
from crawler.app.signals import on_stop_signal, run_until_signal
from crawler.app.supervisor import progress_logged, supervise
from crawler.cli import options as option
from crawler.cli.options import (
    FOLDER,
    Duration,
    Number,
    Whole,
    command,
    crawl_names,
    given_settings,
    note_eviction,
    or_restored,
    place_of,
    sets,
    titled,
    typed_options,
)
from crawler.cli.output_folders import remember
from crawler.cli.screens import (
    ThisRun,
    failed_in_handlers,
    follow,
    found_nothing,
    good_pages,
    has_failed,
    log_above,
    summarize,
)
from crawler.cli.seeds import check_first, gather_seeds, no_seeds, open_for, push_seeds, seed_options
from crawler.cli.text import Terminal, note, print_json
from crawler.errors import UserError
from crawler.observe.health import health_records
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, Settings, missing_contact
from crawler.settings.policies import check
from crawler.sinks.files import check_output_folder
from crawler.sinks.lines import has_lines
from crawler.wording import count_of, with_place
from frontier.control import Control
from frontier.counters import Counters, Counts
from frontier.crawls import crawl_clock
from frontier.entries import tag_of
from frontier.known_pages import refresh_due_by
from frontier.store import RedisStore

QUIET, VERBOSE = "warning", ("debug", "info")
"""The log level of the replicas of `crawler crawl` unless one is set, and the levels at which the log replaces the live
display."""

NO_PAGE = "error: no page was fetched successfully, and nothing is left: see the reasons above, or `crawler why URL`"

STOPPING = "stopping: requests in flight have {:g} s to end; a second Ctrl-C does not wait for them"

STOPPING_AT_ONCE = "stopping without waiting for requests in flight"

NOTHING_TO_CRAWL = (
    "has nothing left to crawl: give it other seeds, or queue URLs again with `crawler seed --again` or "
    "`crawler dead requeue`"
)

SHOWN = 20
"""URLs that `crawler try` shows of each list. With --json, all are."""


@command()
@seed_options
@sets("limits.max_pages", "--max-pages", type=Whole(0), help="Maximum number of pages, over all replicas.")
@sets("scope.max_depth", "--max-depth", type=Whole(0, 255), help="Maximum number of links from a seed.")
@click.option(
    "--due-within",
    type=Duration(),
    default=0.0,
    metavar="TIME",
    help="Visit known pages now that are due within this time, such as 6h; for runs from cron.",
)
@option.replicas
@option.out
@option.render
@sets(
    "politeness.delay",
    "--delay",
    type=Number(0),
    metavar="SECONDS",
    help="Seconds between requests to a domain; 0 only for your own sites.",
)
@option.scope
@option.host_map
@option.allow
@option.port
@option.concurrency
@sets(
    "archive.on_page",
    "--on-page",
    multiple=True,
    metavar="MODULE:FUNCTION",
    help="package.module:function to call with each page; see docs/how-to/extend.md.",
)
@option.app
@option.listen
@option.crawl_name
@option.store
@option.on_difference
@click.option(
    "--quiet",
    "-q",
    is_flag=True,
    help="No live display and no progress: only the summary, and on standard error what needs attention.",
)
@option.logging_options
def crawl(
    urls: tuple[str, ...],
    files: tuple[Path, ...],
    due_within: float,
    replicas: int,
    allow: tuple[str, ...],
    port: tuple[int, ...],
    crawl: str,
    on_difference: OnDifference,
    quiet: bool,
) -> None:
    """Crawl from URLs or seed files until nothing is left.

    No service is needed: the queue is stored in the data directory. Ctrl-C stops cleanly, and the same command resumes
    the crawl, also after `crawler stop` or `crawler pause`. Without any setting in a file, the environment or an option,
    the crawl keeps its own. Otherwise, if the settings, including defaults, differ from those of the crawl, the command
    shows the differences and stops, unless `--keep-settings` or `--apply-settings` is given. Seeds that the settings
    forbid are reported and not queued.

    Examples:

        crawler crawl https://example.com --max-pages 1000
        crawler crawl -f seeds.txt --replicas 4 --out pages
        crawler crawl http://localhost:3000 --allow localhost --port 3000
        crawler crawl
    """
    settings = given_settings(allow, port)
    job = CrawlJob(
        crawl, settings, urls, files, replicas, show=not quiet, on_difference=on_difference, due_within_s=due_within
    )
    sys.exit(run_until_signal(job.run()))


class CrawlJob(msgspec.Struct, frozen=True):
    """A crawl on this machine: seeds, replicas until the crawl has ended, and the summary. `show`: display or log the
    progress. `due_within_s`: known pages that are due within so many seconds are visited now. `stopping` is set when a
    signal stops the replicas."""

    crawl: str
    settings: Settings
    urls: Sequence[str]
    files: Sequence[Path] = ()
    replicas: int = 1
    show: bool = True
    on_difference: OnDifference = "stop"
    due_within_s: float = 0.0
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def run(self) -> int:
        """Crawl, and return the exit code."""
        local = self.settings.replica
        console = Terminal(stderr=True)
        level = local.log_level if self.settings.names("replica.log_level") else None
        shows = self.show and console.is_terminal and level not in VERBOSE
        logs.configure(local.log_format, level or (QUIET if shows or not self.show else "info"))
        check(self.settings)
        check_installed(self.settings)
        request_setup(self.settings)  # raises an error for a key or a secret that cannot be used
        check_output_folder(local.out)
        display = console if shows else None
        async with contextlib.AsyncExitStack() as stack:
            log = (level or QUIET, await stack.enter_async_context(log_above(display)))
            if shows:  # this process logs that a replica was killed
                logs.configure(
                    local.log_format, log[0], stack.enter_context(os.fdopen(os.dup(log[1]), "w", buffering=1))
                )
                stack.callback(logs.configure, local.log_format, log[0])
            # Before the store, so that nothing is created if a port is taken, and before the seeds are parsed: the replicas
            # import meanwhile.
            supervisor = supervise(self.crawl, self.settings, self.replicas, until_empty=True, log=log)
            await stack.enter_async_context(supervisor.prepared())
            seeds = gather_seeds(self.settings.crawl, self.urls, self.files)
            if not (seeds or local.redis or local.data_dir.exists()):
                raise UserError(no_seeds(self.files) + or_restored(local.out, self.crawl))
            seeds = await check_first(seeds, self.settings)
            store = await stack.enter_async_context(open_store(local))
            note_eviction(store)
            stored, seeds = await open_for(store, self.crawl, self.settings, seeds, self.on_difference, whole=True)
            applied = CrawlSettings.from_json(stored.settings)
            check_guarded(applied, accepted(self.settings))
            check_installed(applied)
            name = titled(self.crawl, "the crawl")
            if stored.created and has_lines(local.out, self.crawl):
                note(await self._earlier(store))
            is_silent = not self.show or stored.created
            if not is_silent and self.settings.name_none_of_a_crawl and (own := own_settings(applied)):
                console.tell(f"{name} has settings of its own, which apply: {own}")
            for problem in filter(None, (missing_contact(applied), *missing_tables(self.settings, stored.local))):
                note(problem)
            pushed = await push_seeds(store, stored, seeds, self.settings)
            before = await Counters(store, stored.keys).counts()
            started = time.monotonic()
            if self.due_within_s and not applied.recrawl.rules:
                note("--due-within changes nothing: without recrawl.rules, no page is visited again")
            elif self.due_within_s:
                now_ms = (await crawl_clock(store, stored)).now_ms()
                await refresh_due_by(store, stored.keys, now_ms / 1000 + self.due_within_s, now_ms)
            running = len(await health_records(store, stored.keys))
            control = Control(store, stored.keys)
            await control.refresh()
            resumed = _resumed(before, pushed.accepted, running, applied, control.limit)
            if resumed and not stored.created and (self.show or not resumed.startswith(_VISITS)):
                console.tell(f"{name} {resumed}")
            remember(local, self.crawl)
            good_before = good_pages(before)
            await control.set("run")
            for address in supervisor.addresses:
                console.print(f"live page: http://{address}/")

            def stop() -> None:
                supervisor.stop()
                if local.log_format != "json":  # a line of JSON from each replica says the same
                    with contextlib.suppress(OSError):  # the terminal is closed
                        is_second = self.stopping.is_set()
                        console.tell(STOPPING_AT_ONCE if is_second else STOPPING.format(local.grace))
                self.stopping.set()

            on_stop_signal(stop)
            async with progress_logged(store, self.crawl, local.progress if self.show and not shows else 0):
                code = await follow(store, self.crawl, supervisor, display, self._place)
            run = ThisRun(before, time.monotonic() - started, applied.politeness.delay, bool(applied.recrawl.rules))
            summary = await summarize(store, self.crawl, local.out, Terminal(), self._place, run)
        has_work = bool(pushed.accepted or (before.open and not good_before))  # otherwise the crawl had ended before
        if code == 0 and summary is not None:
            hint = failed_in_handlers(summary)
            if not hint and self.settings.scope.max_depth != 0:
                hint = found_nothing(summary, pushed.accepted)
            for line in with_place(filter(None, [hint]), self._place):
                console.print(line)
        if code == 0 and summary is not None and has_work and has_failed(summary, good_before):
            console.print(NO_PAGE)
            return 1
        return code

    async def _earlier(self, store: RedisStore) -> str:
        """Return that the output is of an earlier crawl, which a repair restores once the store has lost the new one,
        too."""
        local = self.settings.replica
        is_alone = not local.redis and await crawl_names(store) == [self.crawl]
        undo = f"remove {local.data_dir}/" if is_alone else "delete the keys of this one in Redis"
        repair = f"crawler repair {self._place} --archive {shlex.quote(str(local.out))}"
        return (
            f"{local.out}/ has pages of an earlier crawl {self.crawl!r}, which are fetched again; to go on with that one, "
            f"if its queue was lost: stop this one (Ctrl-C), {undo}, and run `{repair}` with its settings and seeds"
        )

    @property
    def _place(self) -> str:
        local = self.settings.replica
        data_dir = local.data_dir if self.settings.names("replica.data_dir") and not local.redis else None
        return place_of(self.crawl, typed_options(local.redis, data_dir, None))


_VISITS = "visits those of"


def _resumed(before: Counts, accepted: int, running: int, settings: CrawlSettings, limit: str) -> str:
    """Return how an existing crawl goes on, or "". `accepted`: new seeds; `running`: replicas; `limit`: one that is
    reached."""
    max_pages, known = settings.limits.max_pages, count_of(before.known, "known page")
    if running:
        return f"is being crawled by {count_of(running, 'replica')} already; this command adds more"
    if 0 < max_pages <= before.done:
        return f"has reached its limit of {count_of(max_pages, 'page')}, so nothing more is fetched"
    if limit:
        return f"has reached limits.{limit}, so nothing more is fetched"
    if accepted:
        return ""
    if before.open:
        return "continues where it stopped"
    if not before.known:
        return NOTHING_TO_CRAWL
    if not settings.recrawl.rules:
        return f"{NOTHING_TO_CRAWL}; no rule of [recrawl] has it visit its {known} again"
    return f"{_VISITS} {known} that are due"


def _of_browser(rendered: dict[str, Any]) -> str:
    loaded, refused = (
        ", ".join(f"{name} {count:,}" for name, count in sorted(rendered[part].items()))
        for part in ("loaded", "refused")
    )
    return (
        f"rendered: {rendered['outcome']} in {rendered['seconds']:g} s; loaded: {loaded or 'nothing'}; "
        f"refused: {refused or 'nothing'}"
        + "".join(f"; no element for the step {step!r}" for step in rendered["failed_steps"])
    )


NEEDS = {
    "no": "no: it has no script",
    "yes": "yes: without its scripts it is nearly empty",
    "ask": "samples of its shape tell",
}
"""Whether pages are rendered with `render.mode = "auto"`."""


@command("try")
@click.argument("url", help="URL to fetch.")
@click.option("--label", default="", metavar="WORD", help="Label with which a handler would have enqueued the URL.")
@click.option("--payload", metavar="JSON", help="Payload with which it would have, such as '{\"shop\": 7}'.")
@click.option("--record", type=FOLDER, help="Folder in which to save the page and its items for a test.")
@sets("render.mode", "--render", flag_value="always", help="Render the page in a browser.")
@click.option("--screenshot", type=option.FILE, help="PNG file for the rendered page, with its images.")
@option.app
@option.settings_file
@option.host_map
@option.allow
@option.port
@option.as_json
def try_(
    url: str,
    label: str,
    payload: str | None,
    record: Path | None,
    screenshot: Path | None,
    allow: tuple[str, ...],
    port: tuple[int, ...],
    as_json: bool,
) -> None:
    """Fetch one page, as a crawl would, and show its items, why there are not more, its links, and what would be queued.

    It obeys robots.txt, makes one request for the page, follows no redirect except to the same URL, and keeps nothing but
    what `--record` saves: `crawler.testing.page` loads it. The exit code is 1 if the page was not fetched, or its handler
    failed.

    Example:

        crawler try https://example.com/product/1 --settings shop.toml
        crawler try https://example.com/product/1 --app shop:router
        crawler try https://example.com/product/1 --app shop:router --label product --record tests/pages/product
    """
    from crawler.app.trial import try_url  # noqa: PLC0415 - imports the engine; the help does not need it

    settings = given_settings(allow, port)
    logs.configure(settings.replica.log_format, "error")
    try:
        tag = tag_of(label, None if payload is None else msgspec.json.decode(payload))
    except ValueError as error:
        raise UserError(f"--label, --payload: {error}") from error
    if screenshot is not None:
        load = tuple(dict.fromkeys((*settings.render.load, "image", "font")))
        table = replace(settings.render, mode="always", load=load, screenshot=True)
        settings = replace(settings, render=table)
    trial = run_until_signal(try_url(url, settings, tag, record, screenshot))
    if as_json:
        print_json(trial)
    else:
        status = "no response" if trial.status is None else f"status {trial.status}"
        lines = [f"{trial.url}: {trial.outcome} ({trial.reason}), {status}, {trial.content_type or 'no type'}"]
        lines += [f"title: {trial.title}"] if trial.title else []
        lines += [f"handler failed: {trial.handler_error}"] if trial.handler_error else []
        lines += [_of_browser(trial.rendered)] if trial.rendered else []
        if trial.needs_browser and settings.render.mode != "off":
            lines.append(f"rendered with --render auto: {NEEDS[trial.needs_browser]}")
        lines.append(count_of(len(trial.items), "item"))
        lines += [f"  {item['data_set']}: {msgspec.json.encode(item['item']).decode()}" for item in trial.items]
        if trial.rejected_count:
            lines += [f"{count_of(trial.rejected_count, 'item')} rejected", *(f"  {one}" for one in trial.rejected)]
        lines += trial.findings
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in sorted(trial.dropped.items()))
        not_followed = f", of which are not followed: {dropped}" if dropped else ""
        lines.append(f"{count_of(len(trial.links), 'link')}{not_followed}")
        lines.append(f"{count_of(len(trial.queued), 'URL')} would be queued")
        lines += [f"  {one['url']} (priority {one['priority']:g})" for one in trial.queued[:SHOWN]]
        if len(trial.queued) > SHOWN:
            lines.append(f"  and {len(trial.queued) - SHOWN:,} more (--json shows all)")
        terminal = Terminal(soft_wrap=True)
        for line in lines:
            terminal.print(line)
    if trial.outcome != "done":
        sys.exit(1)
