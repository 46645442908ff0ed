"""`crawler finish`: finishes the files that killed replicas left open, and uploads what the store lacks, as a replica that
starts in their folder does."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crawler import logs
from crawler.app.archive_setup import archive_settings
from crawler.app.signals import run_until_signal
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl
from crawler.cli.output_folders import check_exists
from crawler.cli.shared_options import AsJson
from crawler.cli.terminal import emit
from crawler.errors import UPLOADS_LEFT, SinkFull, UserError
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings
from crawler.sinks.postprocess import PostProcessor
from crawler.sinks.recovery import (
    OrphanedVolume,
    find_orphans,
    finish_orphans,
    journaled_volumes,
    open_volumes,
    unsettled_in,
)
from crawler.sinks.segment import translated
from crawler.sinks.sink import Revoke
from crawler.wording import count_of
from frontier.crawls import Crawl, crawl_clock
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore

SHOWN = 3


class Result(msgspec.Struct, frozen=True):
    """`files`: the finished files. `removed_pages`: pages that were not settled, and are fetched again. `being_written`:
    volumes of running replicas. `of_other_crawls`: open volumes of crawls that were not named. Both were left alone.
    `uploads_left`: how many files could not be uploaded."""

    folder: str
    files: list[str]
    removed_pages: int
    being_written: list[str]
    of_other_crawls: list[str]
    uploads_left: int


@on_a_crawl
def finish(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Output folder with open files; default: that of the settings.", show_default=False),
    ] = None,
    *,
    access: CrawlAccess,
    offline: Annotated[
        bool, typer.Option("--offline", help="Do not ask Redis: keep pages even if they will be fetched again.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Finish the files that killed replicas left open.

    A replica that starts in a folder does the same. Files that a running replica writes are left alone. With
    archive.upload, all finished files that the store lacks are uploaded, also if none was open.

    The last pages of each file are kept if Redis counts them as settled. The others are removed, because the crawl
    fetches them again.

    [bold]Examples[/bold]

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
    emit(result, json, _render(result), wraps=False)
    if result.uploads_left:
        raise typer.Exit(UPLOADS_LEFT)


def _finish_folder(folder: Path, access: CrawlAccess, offline: bool, stack: contextlib.ExitStack) -> Result:
    """Finish the volumes of the crawl of `access`, which stay locked until `stack` is closed."""
    orphans = find_orphans(folder)
    for orphan in orphans:
        stack.callback(orphan.journal.close)
    others = {one.name: one.doubt.crawl for one in orphans if one.doubt and one.doubt.crawl != access.crawl}
    written = journaled_volumes(folder) - {orphan.name for orphan in orphans}
    left = open_volumes(folder) - written - others.keys()
    if others and not left:
        crawl = min(others.values())
        raise UserError(f"the open files in {folder} belong to crawl {crawl!r}: add --crawl {crawl}")
    if written and not left:
        raise UserError(
            f"a running replica or another `crawler finish` has the open files in {folder}, and finishes them: "
            + ", ".join(sorted(written)[:SHOWN])
        )
    ours = [orphan for orphan in orphans if orphan.name not in others]
    is_to_do = left or offline or _is_here(access)
    kept, removed, not_uploaded = _finish(folder, ours, access, offline) if is_to_do else ([], 0, 0)
    return Result(str(folder), [path.name for path in kept], removed, sorted(written), sorted(others), not_uploaded)


def _is_here(access: CrawlAccess) -> bool:
    """Whether the crawl can be asked for its settings, which say whether files are uploaded."""
    try:
        access.check_place()
    except UserError:
        return False
    return True


def _finish(
    folder: Path, orphans: Sequence[OrphanedVolume], access: CrawlAccess, offline: bool
) -> tuple[list[Path], int, int]:
    """Finish `orphans`, and open files without a journal. Returns the files that were kept, the number of pages that were
    removed, and the number of files that could not be uploaded."""

    async def ask_and_finish(revoke: Revoke | None, settings: CrawlSettings) -> tuple[list[Path], int, int]:
        replica = msgspec.structs.replace(access.settings.replica, out=folder)
        archive = archive_settings(access.crawl, "", settings, replica)
        post_processor = PostProcessor(archive)
        try:
            judged = [(orphan, await unsettled_in(orphan, revoke)) for orphan in orphans]
            kept = finish_orphans(folder, judged, archive.index)
            post_processor.catch_up()
        finally:
            not_uploaded = await post_processor.stop(hastily=False)
        return kept, sum(len(unsettled) for _, unsettled in judged), not_uploaded

    async def work(store: RedisStore, crawl: Crawl) -> tuple[list[Path], int, int]:
        settings = CrawlSettings.from_json(crawl.settings)
        check_guarded(settings, accepted(access.settings), {"archive.upload"})
        clock = await crawl_clock(store, crawl)
        frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
        return await ask_and_finish(frontier.revoke, settings)

    return run_until_signal(ask_and_finish(None, access.settings.crawl)) if offline else access.do(work)


def _render(result: Result) -> str:
    if not (result.files or result.removed_pages or result.being_written or result.of_other_crawls):
        return f"{result.folder}/ has no open files with pages"
    lines = [f"{count_of(len(result.files), 'file')} finished in {result.folder}/"]
    if result.removed_pages:
        lines.append(
            f"removed, because not settled: {count_of(result.removed_pages, 'page')}; the crawl fetches them again"
        )
    if result.being_written:
        lines.append(f"left to running replicas: {count_of(len(result.being_written), 'volume')} that they write")
    if result.of_other_crawls:
        lines.append(
            f"left open: {count_of(len(result.of_other_crawls), 'volume')} of other crawls; finish them with --crawl"
        )
    return "\n".join(lines)
