"""`crawler repair`: restores shards whose data Redis has lost, from the seeds and the archives. `crawler finish`:
finishes the files that killed replicas left open, and uploads what the store lacks, as a replica that starts in their
folder does."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from itertools import starmap
from pathlib import Path

import click
import msgspec

from crawler import logs
from crawler.app.crawl_settings import SHOWN, differences, kept_settings
from crawler.app.embedded_valkey import open_store
from crawler.app.restore import PAGES_AT_ONCE, OldState, ended, found_on, page_lines
from crawler.app.signals import run_until_signal
from crawler.cli.options import (
    FILE,
    FOLDER,
    CrawlAccess,
    as_json,
    command,
    note_eviction,
    on_a_crawl,
    open_frontier,
)
from crawler.cli.output_folders import check_exists, one_crawl
from crawler.cli.seeds import gather_seeds
from crawler.cli.text import emit, note
from crawler.errors import UPLOADS_LEFT, SinkFull, UserError
from crawler.observe.health import health_records
from crawler.page import Outcome
from crawler.redis_retry import LONGEST_WAIT_S
from crawler.scope.scope import RecentUrls
from crawler.scope.seeds import SeedList
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, load
from crawler.sinks.archive_settings import archive_settings
from crawler.sinks.files import translated
from crawler.sinks.forget import marks_in
from crawler.sinks.items import types_of
from crawler.sinks.lines import SortedVisits
from crawler.sinks.recovery import (
    find_orphans,
    finish_orphans,
    journaled_volumes,
    lost_records_in_words,
    open_volumes,
    unsettled_in,
)
from crawler.sinks.sink import Revoke
from crawler.sinks.upload import PostProcessor
from crawler.sinks.volume import Volume
from crawler.wording import count_of
from frontier.control import Control
from frontier.crawls import Crawl, FieldTypes, crawl_clock, evicted_keys, forget_evictions, open_crawl, recreate_crawl
from frontier.entries import Entry
from frontier.errors import NoSuchCrawl
from frontier.forget import forget_again
from frontier.repair import Repair, clear_shards, remove_wrong_keys
from frontier.store import RedisStore, batched

SHOWN_VOLUMES = 3

REPORT_S = 1.5 * LONGEST_WAIT_S + 2.0
"""Seconds in which every replica that runs has reported again: one that met a wrong type waits so long before it tries
again."""


class Repaired(msgspec.Struct, frozen=True):
    """What `crawler repair` has done.

    `shards`: the restored ones. `restored`: URLs recorded as settled; `known`: pages of these that are visited again;
    `queued`: URLs to be fetched; `without_links`: pages whose links the archive does not have, so URLs found only there are
    not known."""

    shards: list[int]
    restored: int = 0
    known: int = 0
    queued: int = 0
    without_links: int = 0


@command()
@click.argument("urls", nargs=-1, help="Seeds of the crawl.")
@on_a_crawl
@click.option("--file", "-f", "files", type=FILE, multiple=True, help="File with seeds.")
@click.option(
    "--archive",
    type=FOLDER,
    multiple=True,
    help="Output folder of the crawl, once for each; default: that of the settings.",
)
@click.option("--accept-loss", is_flag=True, help="Without archives: what was in the lost shards is fetched again.")
@click.option("--evicted", is_flag=True, help="Restore all shards: Redis has evicted single keys from them.")
@as_json
def repair(
    urls: tuple[str, ...],
    access: CrawlAccess,
    files: tuple[Path, ...],
    archive: tuple[Path, ...],
    accept_loss: bool,
    evicted: bool,
    as_json: bool,
) -> None:
    """Restore shards whose data Redis has lost.

    A server that comes back without its data has lost its shards of the crawl, and replicas stop instead of taking them
    for finished ones. On a Redis Cluster, they go on with the shards of the other nodes, and may run during the repair.
    This command records the URLs in the archives as settled, plans the next visits of known pages as they were planned,
    and queues the links of all pages and the seeds. A server that evicts keys loses parts of shards without a trace:
    with --evicted, all shards are restored. If no shard is lost, it settles again what replicas that have ended had
    settled and a server without its last writes has forgotten. Give all seeds and the output folders of all machines.
    If Redis has lost everything, the crawl is created again with the settings that its replicas have written down
    beside its output. Settings that are given, such as in a file, change them one by one. If a repair is interrupted,
    repeat it.

    Examples:

        crawler repair -f seeds.txt
        crawler repair -f seeds.txt --archive /mnt/a/crawl-out --archive /mnt/b/crawl-out --redis redis://10.0.0.5
    """
    folders = [] if accept_loss else (list(archive) or [access.settings.replica.out])
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; name the crawl's output folders with --archive")
    seeds = gather_seeds(access.settings.crawl, urls, files)
    logs.configure(access.settings.replica.log_format, "warning")

    async def work() -> Repaired:
        async with open_store(access.settings.replica) as store:
            note_eviction(store)
            if evicted and (keys := await remove_wrong_keys(store, access.crawl)):
                note(f"removed, because somebody else had written over them: {', '.join(keys)}; what they had is lost")
                await asyncio.sleep(REPORT_S)
            opened = await _opened(store, access, folders)
            if evicted:
                if await health_records(store, opened.keys):
                    raise UserError(
                        "replicas of the crawl run, or ran a moment ago: stop them with `crawler stop` first"
                    )
                await clear_shards(store, opened.keys)
            elif (number := await evicted_keys(store, opened.keys)) and folders:
                note(
                    f"Redis has evicted {count_of(number, 'key')}: if they were of this crawl, single URLs are missing "
                    "from any shard, which only --evicted restores"
                )
            result = await _repair(store, opened, access, seeds, folders)
            if evicted:
                await forget_evictions(store, opened.keys)
            return result

    result = run_until_signal(work())
    if seeds and not result.shards:
        note("the seeds that are given were not queued; `crawler seed` queues those that are new")
    emit(result, as_json, _repaired_lines(result), wraps=False)


async def _opened(store: RedisStore, access: CrawlAccess, folders: Sequence[Path]) -> Crawl:
    try:
        opened = await open_crawl(store, access.crawl)
        _note_ignored(opened, access)
        return opened
    except NoSuchCrawl:
        one_crawl(folders, access.crawl)  # raises UserError if they have the output of other crawls only
        settings, kept, found = access.settings, kept_settings(folders, access.crawl), ""
        created = settings.onto(load(kept).created) if kept is not None else settings.created
        if kept is not None:
            changed = "" if settings.name_none_of_a_crawl else ", changed by those that are given"
            found = f"the settings in {kept}{changed}"
        elif settings.name_none_of_a_crawl:
            found = "default settings, by which `crawler audit` will judge it: none are given, such as --settings FILE"
        if found:
            note(f"crawl {access.crawl!r} is created again with {found}")
        return await recreate_crawl(store, access.crawl, created.frontier.shards, created.to_json())


def _note_ignored(crawl: Crawl, access: CrawlAccess) -> None:
    """Say which settings that are given differ from those of the crawl, which a repair does not change."""
    stored = CrawlSettings.from_json(crawl.settings).with_shards(crawl.shards)
    if ignored := [one.name for one in differences(stored, access.settings.onto(stored))]:
        names, more = ", ".join(ignored[:SHOWN]), f" and {len(ignored) - SHOWN} more" if len(ignored) > SHOWN else ""
        note(
            f"the crawl exists and keeps its settings, so these that are given were ignored: {names}{more}; "
            "`crawler config apply` changes them"
        )


async def _repair(
    store: RedisStore, crawl: Crawl, access: CrawlAccess, seeds: SeedList, folders: Sequence[Path]
) -> Repaired:
    settings = CrawlSettings.from_json(crawl.settings)
    check_guarded(settings, accepted(access.settings), {"frontier.scorer"})
    clock = await crawl_clock(store, crawl)
    repair = Repair(store, crawl, clock, settings.limits.domain_cap)
    control = Control(store, crawl.keys)
    await control.refresh()
    forgotten = control.rules.forgotten.union(*(marks_in(folder) for folder in folders))
    frontier = await open_frontier(store, crawl)
    await FieldTypes(store, crawl.keys).keep(types_of(folders, crawl.name))
    is_lost = bool(await repair.begin(forgotten))
    from crawler.app.engine import build_settings, link_filter  # noqa: PLC0415 - imports the engine, which the help does not need

    policy, links = build_settings(settings).extract, link_filter(settings, RecentUrls(1))
    if not is_lost:  # but perhaps its last writes, after the last replica had ended
        if settings.recrawl.rules or await health_records(store, crawl.keys):
            return Repaired([])
        await forget_again(store, crawl, frontier, forgotten)
        old = OldState(store, crawl, clock, folders, links, policy, settings.limits.domain_cap)
        return Repaired([], await old.restore_ended())
    restored = without_links = 0
    with contextlib.closing(SortedVisits(folders)) as visits:
        # A URL that was given up or denied, and then fetched, has a line of each kind. Its page counts.
        for is_done in (True, False):
            lines = page_lines(folders, crawl.name)
            wanted = (line for line in lines if (line.outcome == Outcome.DONE) is is_done)
            for of_kind in batched(wanted, PAGES_AT_ONCE):
                restored += await repair.restore(list(map(ended, of_kind)))
                concerned = [line for line in of_kind if repair.concerns(line.domain)]
                visits.add(concerned)
                for line in concerned:
                    if line.items:
                        repair.count_items(line.domain, {name: len(items) for name, items in line.items.items()})
        known = sum([await repair.restore_visits(pages) for pages in batched(visits.pages(), PAGES_AT_ONCE)])
    queued = await repair.push(Entry(seed.url.href, seed.url.domain, seed.priority or 0.0) for seed in seeds)
    # After all pages, so that links to known domains only are judged by all of them.
    for line in page_lines(folders, crawl.name):
        queued += await repair.push(found_on(line, folders, links, policy))
        without_links += line.links is None and line.link_count > 0
    await repair.finish()
    await forget_again(store, crawl, frontier, forgotten)
    return Repaired(sorted(repair.shards), restored, known, queued, without_links)


def _repaired_lines(result: Repaired) -> str:
    if not result.shards:
        settled = (
            f"; {count_of(result.restored, 'URL')} settled again that Redis had forgotten" if result.restored else ""
        )
        return f"no shard has lost its data{settled}"
    settled = f"{count_of(result.restored, 'URL')} settled, {result.queued:,} queued"
    if result.known:
        settled += f", {count_of(result.known, 'known page')} to be visited again"
    lines = [f"{count_of(len(result.shards), 'shard')} restored: {settled}"]
    if result.without_links:
        lines.append(
            f"without links in the archive (archive.links is off): {count_of(result.without_links, 'page')}, so URLs that "
            "only such pages link to are missing"
        )
    return "\n".join(lines)


# finish


class Finished(msgspec.Struct, frozen=True):
    """What `crawler finish` has done.

    `files`: the finished files. `removed_pages`: pages that were not settled, and are fetched again. `being_written`:
    volumes of running replicas. `of_other_crawls`: open volumes of crawls that were not named. Both were left alone.
    `uploads_left`: how many files could not be uploaded. `lost_records`: how many records are missing at the end of WARC
    files that were cut off, as after a power failure, by volume."""

    folder: str
    files: list[str]
    removed_pages: int
    being_written: list[str]
    of_other_crawls: list[str]
    uploads_left: int
    lost_records: dict[str, int]


@command()
@click.argument(
    "folder", type=FOLDER, required=False, help="Output folder with open files; default: that of the settings."
)
@on_a_crawl
@click.option("--offline", is_flag=True, help="Do not ask Redis: keep pages even if they will be fetched again.")
@as_json
def finish(folder: Path | None, access: CrawlAccess, offline: bool, as_json: bool) -> None:
    """Finish the files that killed replicas left open.

    A replica that starts in a folder does the same. Files that a running replica writes are left alone. With
    archive.upload, all finished files that the store lacks are uploaded, also if none was open.

    The last pages of each file are kept if Redis counts them as settled. The others are removed, because the crawl
    fetches them again.

    Examples:

        crawler finish crawl-out
        crawler finish /mnt/node-7/crawl-out --crawl news --redis redis://10.0.0.5
    """
    folder = folder or access.settings.replica.out
    check_exists(folder)
    logs.configure(access.settings.replica.log_format, "warning")
    try:
        with translated(folder), contextlib.ExitStack() as stack:
            result = _finish_folder(folder, access, offline, stack)
    except SinkFull as error:
        raise UserError(f"{error}; free some space and repeat the command") from error
    emit(result, as_json, _finished_lines(result), wraps=False)
    if result.lost_records:
        sys.exit(1)
    if result.uploads_left:
        sys.exit(UPLOADS_LEFT)


def _finish_folder(folder: Path, access: CrawlAccess, offline: bool, stack: contextlib.ExitStack) -> Finished:
    orphans = find_orphans(folder)
    for orphan in orphans:
        stack.callback(orphan.leave)
    others = {one.name: one.doubt.crawl for one in orphans if one.doubt and one.doubt.crawl != access.crawl}
    written = journaled_volumes(folder) - {orphan.name for orphan in orphans}
    left = open_volumes(folder) - written - others.keys()
    if others and not left:
        crawl = min(others.values())
        raise UserError(f"the open files in {folder} belong to crawl {crawl!r}: add --crawl {crawl}")
    if written and not left:
        raise UserError(
            f"a running replica or another `crawler finish` has the open files in {folder}, and finishes them: "
            + ", ".join(sorted(written)[:SHOWN_VOLUMES])
        )
    ours = [orphan for orphan in orphans if orphan.name not in others]
    is_to_do = left or offline or access.has_store  # the crawl's settings say whether files are uploaded
    kept, lost, removed, not_uploaded = _finish_volumes(folder, ours, access, offline) if is_to_do else ([], {}, 0, 0)
    names = [path.name for path in kept]
    return Finished(str(folder), names, removed, sorted(written), sorted(others), not_uploaded, lost)


def _finish_volumes(
    folder: Path, orphans: Sequence[Volume], access: CrawlAccess, offline: bool
) -> tuple[list[Path], dict[str, int], int, int]:
    """Finish `orphans`, and open files without a journal. Returns the files that were kept, how many records of each volume
    are lost, the number of pages that were removed, and the number of files that could not be uploaded."""

    async def finish(revoke: Revoke | None, settings: CrawlSettings) -> tuple[list[Path], dict[str, int], int, int]:
        replica = msgspec.structs.replace(access.settings.replica, out=folder)
        archive = archive_settings(access.crawl, "", settings, replica)
        post_processor = PostProcessor(archive)
        try:
            judged = [(orphan, await unsettled_in(orphan, revoke)) for orphan in orphans]
            kept, lost = finish_orphans(folder, judged, archive.index)
            post_processor.catch_up()
        finally:
            not_uploaded = await post_processor.stop(hastily=False)
        return kept, lost, sum(len(unsettled) for _, unsettled in judged), not_uploaded

    async def work(store: RedisStore, crawl: Crawl) -> tuple[list[Path], dict[str, int], int, int]:
        settings = CrawlSettings.from_json(crawl.settings)
        check_guarded(settings, accepted(access.settings), {"archive.upload"})
        return await finish((await open_frontier(store, crawl)).revoke, settings)

    return run_until_signal(finish(None, access.settings.crawl)) if offline else access.do(work)


def _finished_lines(result: Finished) -> str:
    if not (
        result.files or result.removed_pages or result.lost_records or result.being_written or result.of_other_crawls
    ):
        return f"{result.folder}/ has no open files with pages"
    lines = [f"{count_of(len(result.files), 'file')} finished in {result.folder}/"]
    if result.removed_pages:
        lines.append(
            f"removed, because not settled: {count_of(result.removed_pages, 'page')}; the crawl fetches them again"
        )
    lines += starmap(lost_records_in_words, result.lost_records.items())
    if result.being_written:
        lines.append(f"left to running replicas: {count_of(len(result.being_written), 'volume')} that they write")
    if result.of_other_crawls:
        lines.append(
            f"left open: {count_of(len(result.of_other_crawls), 'volume')} of other crawls; finish them with --crawl"
        )
    return "\n".join(lines)
