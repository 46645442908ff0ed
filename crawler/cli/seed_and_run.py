"""What `crawler seed` and `crawler crawl` do: check and queue seeds, and run a whole crawl on one machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec

from crawler import logs
from crawler.app.embedded_valkey import open_store
from crawler.app.installation_check import check_installed
from crawler.app.progress_log import progress_logged
from crawler.app.request_setup import missing_tables, request_setup
from crawler.app.seed_check import refused_seeds
from crawler.app.seeding import queue_seeds
from crawler.app.signals import on_stop_signal
from crawler.app.start_settings import OnDifference, adopt, choose, choose_and_adopt, own_settings
from crawler.app.supervisor import Supervisor, supervise
from crawler.cli.crawl_access import crawl_names, or_restored, place_of, titled
from crawler.cli.crawl_display import follow, good_pages, has_failed, log_above, summarize
from crawler.cli.output_folders import remember
from crawler.cli.seed_lists import about, gather_seeds
from crawler.cli.terminal import Terminal
from crawler.cli.unknown_names import note
from crawler.errors import UserError
from crawler.observe.health_record import health_records
from crawler.scope.seeds import Seed, read_seeds
from crawler.settings.guarded import accepted, check_guarded, consent, needs_consent
from crawler.settings.load import CrawlSettings, Settings, missing_contact
from crawler.settings.policies import check, url_rules
from crawler.settings.tables import RequestsTable
from crawler.sinks.line_search import has_lines
from crawler.sinks.output_folder import check_output_folder
from crawler.wording import count_of
from frontier.control import Control
from frontier.counters import Counters, Counts
from frontier.crawls import Crawl, create_crawl, open_crawl
from frontier.entries import PushMode
from frontier.errors import BadInput
from frontier.queue import PushReply
from frontier.store import RedisStore

QUIET, VERBOSE = "warning", ("debug", "info")
"""The log level of the replicas of `crawler crawl` unless one is set, and the levels at which the log replaces the live
display."""

SHOWN_REFUSED = 20
"""Seeds that cannot be fetched, of which each is reported in a line."""

NO_PAGE = "error: no page was fetched successfully, and nothing is left: see the reasons above, or `crawler why URL`"

STOPPING = "stopping: requests in flight have {:g} s to end; a second Ctrl-C does not wait for them"

STOPPING_AT_ONCE = "stopping without waiting for requests in flight"

NOTHING_LEFT = (
    "has nothing left to crawl: give it other seeds, or queue URLs again with `crawler seed --again` or "
    "`crawler dead requeue`"
)

NO_SEEDS = "no seeds: give URLs, or a seed file with -f FILE"


# seeds


def _no_seeds(files: Sequence[Path]) -> str:
    return (
        f"no seeds in {', '.join(map(str, files))}: give a file with one URL per line, or URLs" if files else NO_SEEDS
    )


class SeedLists(msgspec.Struct, frozen=True):
    """The seeds of a command. `again`: queue also those that were queued before."""

    urls: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    again: bool = False


async def seed_crawl(crawl: str, settings: Settings, lists: SeedLists, on_difference: OnDifference = "stop") -> int:
    """Create the crawl if it does not exist, and push the seeds. Returns the exit code. Raises SettingsDiffer, without
    pushing anything, if the crawl exists with different settings."""
    check(settings)
    seeds = gather_seeds(settings.crawl, lists.urls, lists.files)
    if not seeds:
        raise UserError(_no_seeds(lists.files))
    seeds = await check_first(seeds, settings)
    async with open_store(settings.replica) as store:
        opened, seeds = await open_for(store, crawl, settings, seeds, on_difference)
        pushed = await push_seeds(store, opened, seeds, settings, "again" if lists.again else "new")
    Terminal().print(
        f"{titled(crawl)}: {count_of(pushed.accepted, 'seed')} queued, {pushed.seen:,} seen before"
        + (f", {pushed.capped:,} dropped by the domain cap" if pushed.capped else "")
    )
    local = settings.replica
    if local.redis and opened.created and (names := needs_consent(CrawlSettings.from_json(opened.settings))):
        start = f"{consent(names)} crawler run {place_of(crawl, local.redis, None, None)}"
        note(f"each replica has to accept {', '.join(names)} on its own machine: {start}")
    return 0


async def check_first(seeds: list[Seed], settings: Settings) -> list[Seed]:
    """Check the seeds of a crawl that cannot exist yet before its folder is created. Returns and raises what `fetchable`
    does."""
    local = settings.replica
    if local.redis or local.data_dir.exists():
        return seeds
    missing_contact(settings.crawl)  # raises an error before anything is created
    return await fetchable(seeds, settings.crawl, settings.requests)


async def open_for(
    store: RedisStore,
    name: str,
    settings: Settings,
    seeds: list[Seed],
    on_difference: OnDifference,
    whole: bool = False,
) -> tuple[Crawl, list[Seed]]:
    """Open the crawl `name` with the settings that apply, or create it if there are seeds. Returns the crawl, and the seeds
    that it can fetch. `whole`: see `choose_and_adopt`.

    Raises SettingsDiffer, and UserError if there is neither a crawl nor a seed, or if no seed can be fetched. Nothing has
    changed then.
    """
    existing = await _find(store, name)
    if existing is not None:
        choice = choose(existing, settings, on_difference, whole)
        missing_contact(choice.settings)  # raises an error
        seeds = await fetchable(seeds, choice.settings, settings.requests, "--apply-settings")
        return await adopt(store, existing, choice), seeds
    if not seeds:
        raise UserError(NO_SEEDS + or_restored(settings.replica.out, name))
    missing_contact(settings.crawl)
    seeds = await fetchable(seeds, settings.crawl, settings.requests)
    created = settings.created
    opened = await create_crawl(store, name, created.frontier.shards, created.to_json())
    if not opened.created:  # by another command, since `_find`
        opened = await choose_and_adopt(store, opened, settings, on_difference, whole)
    return opened, seeds


async def _find(store: RedisStore, name: str) -> Crawl | None:
    try:
        return await open_crawl(store, name)
    except BadInput:
        return None


async def fetchable(
    seeds: list[Seed], settings: CrawlSettings, requests: Sequence[RequestsTable], also: str = ""
) -> list[Seed]:
    """Return the seeds that `settings` allow to fetch, and report the others. `requests`: the rules for requests of this
    machine; `also`: what else a command needs to change the settings. Raises UserError if there are only others."""
    refused = await refused_seeds(seeds, settings, requests)
    console = Terminal(stderr=True)
    for one in list(refused.values())[:SHOWN_REFUSED]:
        console.tell(" ".join([str(one), also]).rstrip())
    if len(refused) > SHOWN_REFUSED:
        console.tell(f"and {count_of(len(refused) - SHOWN_REFUSED, 'more seed')} that cannot be fetched")
    if seeds and len(refused) == len(seeds):
        raise UserError(
            "no seed can be fetched, so nothing was queued or started: add the options shown above, or change these "
            "settings"
        )
    return [seed for seed in seeds if seed not in refused]


async def push_seeds(
    store: RedisStore, crawl: Crawl, seeds: list[Seed], read_by: Settings, mode: PushMode = "new"
) -> PushReply:
    """Queue the seeds at depth 0, as `mode` says; in mode "again" those that are dead letters as `crawler dead requeue`
    does. `read_by`: the settings with which they were parsed. Raises UserError for a scorer in Redis that `read_by` does
    not accept."""
    settings = CrawlSettings.from_json(crawl.settings)
    check_guarded(settings, accepted(read_by), {"frontier.scorer"})
    if url_rules(settings) != url_rules(read_by):
        seeds = _reread(seeds, settings)
    pushed = await queue_seeds(store, crawl, seeds, settings, mode)
    if pushed.outside:  # no seed is dropped for another reason
        gone = count_of(pushed.outside, "seed")
        note(f"{gone} dropped, because `crawler forget` has removed their domains for good")
    return pushed


def _reread(seeds: list[Seed], settings: CrawlSettings) -> list[Seed]:
    """Parse `seeds` again with the URL rules of `settings`. A URL that becomes too long, because these rules keep more
    parameters, is reported and skipped."""
    found, errors = read_seeds((seed.text for seed in seeds), url_rules(settings))
    for broken in errors:
        Terminal(stderr=True).tell(f"seed {logs.without_secrets(broken.text)[:80]!r}: {about(broken)}")
    return found


# a whole crawl on one machine


class CrawlJob(msgspec.Struct, frozen=True):
    """`crawler crawl`: seed, run replicas until the crawl has ended, and report the result. `stopping` is set when a signal
    stops the replicas."""

    crawl: str
    settings: Settings
    urls: tuple[str, ...]
    files: tuple[Path, ...]
    replicas: int
    show: bool
    on_difference: OnDifference = "stop"
    stopping: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    async def run(self) -> int:
        local = self.settings.replica
        console = Terminal(stderr=True)
        level = local.log_level if self.settings.names("replica.log_level") else None
        shows = self.show and console.is_terminal and level not in VERBOSE
        logs.configure(local.log_format, level or (QUIET if shows or not self.show else "info"))
        check(self.settings)
        check_installed(self.settings)
        request_setup(self.settings)  # raises an error for a key or a secret that cannot be used
        check_output_folder(local.out)
        shown = console if shows else None
        async with contextlib.AsyncExitStack() as stack:
            log = (level or QUIET, await stack.enter_async_context(log_above(shown)))
            if shows:  # this process logs that a replica was killed
                logs.configure(
                    local.log_format, log[0], stack.enter_context(os.fdopen(os.dup(log[1]), "w", buffering=1))
                )
                stack.callback(logs.configure, local.log_format, log[0])
            # Before the store, so that nothing is created if a port is taken, and before the seeds are parsed, which takes
            # a tenth of a second for the suffix list: the replicas import meanwhile.
            supervisor = supervise(self.crawl, self.settings, self.replicas, until_empty=True, log=log)
            await stack.enter_async_context(supervisor.prepared())
            seeds = gather_seeds(self.settings.crawl, self.urls, self.files)
            if not (seeds or local.redis or local.data_dir.exists()):
                raise UserError(_no_seeds(self.files) + or_restored(local.out, self.crawl))
            seeds = await check_first(seeds, self.settings)
            store = await stack.enter_async_context(open_store(local))
            stored, seeds = await open_for(store, self.crawl, self.settings, seeds, self.on_difference, whole=True)
            applied = CrawlSettings.from_json(stored.settings)
            check_guarded(applied, accepted(self.settings))
            check_installed(applied)
            if stored.created and has_lines(local.out, self.crawl):
                note(await self._earlier(store))
            if not stored.created and self.settings.name_none_of_a_crawl and (own := own_settings(applied)):
                console.tell(f"{titled(self.crawl, 'the crawl')} has settings of its own, which apply: {own}")
            if doubt := missing_contact(applied):
                note(doubt)
            for problem in missing_tables(self.settings, stored.local):
                note(problem)
            pushed = await push_seeds(store, stored, seeds, self.settings)
            before = await Counters(store, stored.keys).counts()
            running = len(await health_records(store, stored.keys))
            if not stored.created and (said := _resumed(before, pushed.accepted, running, applied)):
                console.tell(f"{titled(self.crawl, 'the crawl')} {said}")
            remember(local, self.crawl)
            good_before = good_pages(before)
            await Control(store, stored.keys).set("run")
            for address in supervisor.addresses:
                console.print(f"live page: http://{address}/")
            on_stop_signal(lambda: self._stop(supervisor, console))
            async with progress_logged(store, self.crawl, local.progress if self.show and not shows else 0):
                code = await follow(store, self.crawl, supervisor, shown, self._place())
            found = await summarize(store, self.crawl, local.out, Terminal(), self._place())
        has_work = bool(pushed.accepted or (before.open and not good_before))  # otherwise the crawl had ended before
        if code == 0 and found is not None and has_work and has_failed(found, good_before):
            console.print(NO_PAGE)
            return 1
        return code

    def _stop(self, supervisor: Supervisor, console: Terminal) -> None:
        supervisor.stop()
        local = self.settings.replica
        if local.log_format != "json":  # a line of JSON from each replica says the same
            with contextlib.suppress(OSError):  # the terminal is closed
                console.tell(STOPPING_AT_ONCE if self.stopping.is_set() else STOPPING.format(local.grace))
        self.stopping.set()

    async def _earlier(self, store: RedisStore) -> str:
        """Return that the output folder is that of an earlier crawl, and how to go on with that one: a repair restores it
        only once the store has lost the new one, too."""
        local = self.settings.replica
        is_alone = not local.redis and await crawl_names(store) == [self.crawl]
        undo = f"remove {local.data_dir}/" if is_alone else "delete the keys of this one in Redis"
        repair = f"crawler repair {self._place()} --archive {shlex.quote(str(local.out))}"
        return (
            f"{local.out}/ has pages of an earlier crawl {self.crawl!r}, which are fetched again; to go on with that one, "
            f"if its queue was lost: stop this one (Ctrl-C), {undo}, and run `{repair}` with its settings and seeds"
        )

    def _place(self) -> str:
        local = self.settings.replica
        data_dir = local.data_dir if self.settings.names("replica.data_dir") else None
        return place_of(self.crawl, local.redis, None if local.redis else data_dir, None)


def _resumed(before: Counts, accepted: int, running: int, settings: CrawlSettings) -> str:
    """Return how an existing crawl goes on, or "" if it only gets new seeds. `accepted`: these seeds; `running`: replicas
    that run already."""
    max_pages, known = settings.limits.max_pages, count_of(before.known, "known page")
    if running:
        return f"is being crawled by {count_of(running, 'replica')} already; this command adds more"
    if 0 < max_pages <= before.done:
        return f"has reached its limit of {count_of(max_pages, 'page')}, so nothing more is fetched"
    if accepted:
        return ""
    if before.open:
        return "continues where it stopped"
    if not before.known:
        return NOTHING_LEFT
    if not settings.recrawl.rules:
        return f"{NOTHING_LEFT}; no rule of [recrawl] has it visit its {known} again"
    return f"visits those of {known} that are due"
