"""`crawler forget`: removes a domain whose owner objected from a crawl's state and output."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from crawler.app.embedded_valkey import rewrite_log
from crawler.cli.control import site_named, unknown_domain
from crawler.cli.options import FOLDER, CrawlAccess, as_json, command, on_a_crawl, open_frontier, titled
from crawler.cli.output_folders import check_exists, has_output, output_folders, shown
from crawler.cli.text import emit, note
from crawler.errors import SinkFull, UserError
from crawler.logs import configure
from crawler.observe.health import health_records
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings
from crawler.sinks.archive_settings import ArchiveSettings, archive_settings
from crawler.sinks.files import translated
from crawler.sinks.forget import DomainRewriter, Rewritten
from crawler.sinks.upload import Depot, PostProcessor, UploadFailed
from crawler.sinks.wacz import SUFFIX
from crawler.wording import count_of
from frontier.control import Control
from frontier.counters import Counters, Counts
from frontier.crawls import Crawl
from frontier.forget import Forgetting, Removed
from frontier.redis_url import display_url
from frontier.store import RedisStore


class Result(msgspec.Struct, frozen=True):
    """What `crawler forget` has removed, or with `--dry-run` would remove. `state`: from Redis; `files`: by output folder;
    `left`: what still names the domain, or may, and has to be done by hand."""

    crawl: str
    domain: str
    dry_run: bool
    state: Removed
    files: list[Rewritten]
    left: list[str]


@command()
@click.argument("domain", type=site_named, help="Domain, or a host or URL of it.")
@click.argument("folders", type=FOLDER, nargs=-1, help="Output folders; default: those of the crawl on this machine.")
@on_a_crawl
@click.option("--dry-run", is_flag=True, help="Change nothing: only count what would be removed.")
@click.option(
    "--unknown", is_flag=True, help="Forget the domain even if the crawl has no URL of it; pages may link to it."
)
@as_json
def forget(
    domain: str, folders: tuple[Path, ...], access: CrawlAccess, dry_run: bool, unknown: bool, as_json: bool
) -> None:
    """Remove everything that a crawl has of a domain, for good: from Redis, and from the files in its output folders.

    The domain stays blocked in this crawl, and links to it are dropped. No replica may run meanwhile: block the domain at
    once with `crawler block`, and run this command when the crawl has stopped. If the crawl has output on several machines,
    run it on each. If it is interrupted, run it again.

    Examples:

        crawler forget example.org --dry-run
        crawler forget example.org /mnt/a/crawl-out --crawl news --redis redis://10.0.0.5
    """
    configure(access.settings.replica.log_format, "warning")
    for folder in folders:
        check_exists(folder)
        if not has_output(folder, access.crawl):
            raise UserError(f"no output of crawl {access.crawl!r} in {shown(folder)}: nothing was changed")
    of_crawl = output_folders(access.settings, access.crawl)
    found = folders or [folder for folder in of_crawl if folder.is_dir() and has_output(folder, access.crawl)]

    async def work(store: RedisStore, opened: Crawl) -> tuple[Result, Counts]:
        if not unknown:
            await _check_seen(store, opened, domain, dry_run)
        result = await _forget(store, opened, access, domain, found, dry_run)
        return result, await Counters(store, opened.keys).counts()

    try:
        result, counts = access.do(work)
    except (KeyboardInterrupt, SystemExit):
        note(
            "interrupted, and nothing was changed"
            if dry_run
            else "interrupted; to complete it, repeat the same command"
        )
        raise
    emit(result, as_json, _render(result), wraps=False)
    if counts.done and not found:
        raise UserError(
            f"no output of crawl {access.crawl!r} in {', '.join(map(shown, of_crawl))}, so nothing is removed from files: "
            f"name its folders, as in `crawler forget {domain} FOLDER`"
        )


async def _check_seen(store: RedisStore, crawl: Crawl, domain: str, is_dry: bool) -> None:
    """Raises UserError if the crawl has no URL of `domain` and has not forgotten it before: nobody can undo a mistake."""
    control = Control(store, crawl.keys)
    await control.refresh()
    if control.rules.is_forgotten(domain):
        return
    doubt = await unknown_domain(store, crawl, domain)
    if doubt and is_dry:
        note(doubt)
    elif doubt:
        raise UserError(f"{doubt}: nothing was changed; repeat the command with --unknown if the name is right")


async def _forget(
    store: RedisStore, crawl: Crawl, access: CrawlAccess, domain: str, folders: Sequence[Path], is_dry: bool
) -> Result:
    if crawl.former:
        raise UserError(
            f"crawl {crawl.name!r} still has keys of its former shards; remove them with "
            f"`crawler reshard --shards {crawl.shards} {access.place}`, and repeat the command"
        )
    settings = CrawlSettings.from_json(crawl.settings)
    check_guarded(settings, accepted(access.settings), {"archive.upload"})
    rewriters = [DomainRewriter(folder, domain) for folder in folders]
    await _check_at_rest(store, crawl, access)
    for rewriter in rewriters:
        rewriter.check()
    with contextlib.ExitStack() as locks:
        for rewriter in rewriters:  # a file that cannot be rewritten is reported before anything is removed
            with _translated(rewriter):
                await _in_thread(rewriter, locks.enter_context, rewriter.prepared(is_dry))
        forgetting = Forgetting(store, crawl, await open_frontier(store, crawl), domain, is_dry)
        if not is_dry:
            await forgetting.mark()
            await _check_at_rest(store, crawl, access)  # one that began before the mark may have leased the domain
        await forgetting.purge()
        left = _left_by_hand(settings, domain, folders)
        for rewriter in rewriters:
            replica = msgspec.structs.replace(access.settings.replica, out=Path(rewriter.result.folder))
            archive = archive_settings(crawl.name, "", settings, replica)
            with _translated(rewriter):
                left += await _rewrite(rewriter, forgetting, archive, is_dry)
        if not access.settings.replica.redis and not is_dry:
            await rewrite_log(store)
    return Result(crawl.name, domain, is_dry, forgetting.removed, [one.result for one in rewriters], left)


async def _rewrite(
    rewriter: DomainRewriter, forgetting: Forgetting, archive: ArchiveSettings, is_dry: bool
) -> list[str]:
    loop, url, left = asyncio.get_running_loop(), archive.upload, list[str]()
    depot = Depot.at(url) if url and archive.keep_local and not is_dry else None

    def before(urls: list[str], names: list[str]) -> None:
        asyncio.run_coroutine_threadsafe(forgetting.forget_seen(urls), loop).result()
        for name in names:
            try:
                if depot:
                    depot.remove(name)  # the new file is copied as one that never was
            except UploadFailed as error:
                left.append(f"the copy of {name} in {display_url(url)} could not be removed: {error}")

    await _in_thread(rewriter, rewriter.rewrite, before)
    if depot:
        post_processor = PostProcessor(archive)
        post_processor.catch_up()
        await post_processor.stop(hastily=False)
    elif url and not archive.keep_local:
        left.append(
            f"files that were moved to {display_url(url)} are not rewritten: run the command on a copy of them, and put "
            "the copy back"
        )
    return left


@contextlib.contextmanager
def _translated(rewriter: DomainRewriter) -> Iterator[None]:
    try:
        with translated(Path(rewriter.result.folder)):
            yield
    except SinkFull as error:
        raise UserError(f"{error}; free some space and repeat the same command") from error


async def _in_thread(rewriter: DomainRewriter, work: Callable[..., object], *arguments: object) -> None:
    """Call `work` in a thread. Ctrl-C ends it at the next record."""
    task = asyncio.create_task(asyncio.to_thread(work, *arguments))
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        rewriter.stop()
        with contextlib.suppress(Exception):  # that it was stopped
            await task
        raise


async def _check_at_rest(store: RedisStore, crawl: Crawl, access: CrawlAccess) -> None:
    if records := await health_records(store, crawl.keys):
        run = "runs" if len(records) == 1 else "run"
        raise UserError(
            f"{count_of(len(records), 'replica')} of crawl {crawl.name!r} {run}: stop the crawl with "
            f"`crawler stop {access.place}`, and repeat the command; until then, `crawler block` keeps the domain from "
            "being requested"
        )


def _left_by_hand(settings: CrawlSettings, domain: str, folders: Sequence[Path]) -> list[str]:
    """Return what may still name the domain: settings, and WACZ files, which are made again more easily."""
    named = [name for name, value in settings.flat().items() if domain in str(value)]
    files = [str(path) for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))]
    left = [f"the settings name the domain: {', '.join(named)}; see `crawler config apply`"] if named else []
    return left + ([f"copies that may have the domain: {', '.join(files)}; export them again"] if files else [])


def _render(result: Result) -> str:
    state, would = result.state, "would be " if result.dry_run else ""
    queued = state.queued + state.leased + state.waiting + state.outbox
    lines = [
        f"{titled(result.crawl)}: {result.domain} {'would be' if result.dry_run else 'is'} forgotten and stays blocked",
        f"{would}removed from Redis: {count_of(queued, 'open URL')}, {count_of(state.dead, 'dead letter')}, "
        f"{count_of(state.seen, 'fingerprint')}, {count_of(state.records + state.lost, 'other record')}; "
        f"{count_of(state.found_on, 'entry', 'entries')} of other domains changed",
    ]
    for one in result.files:
        lines.append(
            f"{would}removed in {one.folder}/: {count_of(one.records, 'record')}, {count_of(one.lines, 'line')}, "
            f"{count_of(one.links, 'link')} in other pages; {count_of(len(one.files), 'file')} rewritten, "
            f"{count_of(len(one.removed_files), 'file')} removed"
        )
        if one.bodies_missing:
            lines.append(f"{count_of(one.bodies_missing, 'page')} of other sites can no longer be replayed: same body")
    return "\n".join([*lines, *(f"left: {one}" for one in result.left)])
