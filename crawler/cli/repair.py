"""`crawler repair`: restores shards whose data Redis has lost, from the seeds and the archives."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from crawler.app.embedded_valkey import open_store
from crawler.app.kept_settings import kept_settings
from crawler.app.signals import run_until_signal
from crawler.app.start_settings import SHOWN, differences
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl
from crawler.cli.output_folders import one_crawl
from crawler.cli.seed_lists import gather_seeds
from crawler.cli.shared_options import AsJson
from crawler.cli.terminal import emit
from crawler.cli.unknown_names import note
from crawler.errors import UserError
from crawler.page import LinkKind, Outcome
from crawler.scope.link_filter import LinkFilter
from crawler.scope.recent_urls import RecentUrls
from crawler.scope.seeds import Seed
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, load
from crawler.settings.policies import url_rules
from crawler.sinks.last_visits import LastVisits, VisitLine, scratch_folder
from crawler.sinks.line_search import decoded_lines, is_of_another, line_files
from crawler.sinks.replaced_files import marks_in
from crawler.sinks.types_file import types_of
from crawler.wording import count_of
from frontier.control import Control
from frontier.crawls import Crawl, FieldTypes, crawl_clock, open_crawl, recreate_crawl
from frontier.entries import Entry
from frontier.errors import BadUrl, NoSuchCrawl
from frontier.known_pages import KnownPage
from frontier.repair import Ended, Repair
from frontier.store import RedisStore
from frontier.urls import UrlRules, canonicalize

PAGES_AT_ONCE = 200
"""Pages whose lines are taken in one step. With their links, this is about one second's work of a replica."""


class Result(msgspec.Struct, frozen=True):
    """`shards`: the restored ones. `restored`: URLs recorded as settled; `known`: pages of these that are visited again;
    `queued`: URLs to be fetched; `without_links`: pages whose links the archive does not have, so URLs found only there are
    not known."""

    shards: list[int]
    restored: int = 0
    known: int = 0
    queued: int = 0
    without_links: int = 0


@on_a_crawl
def repair(
    urls: Annotated[list[str] | None, typer.Argument(help="Seeds of the crawl.", show_default=False)] = None,
    *,
    access: CrawlAccess,
    file: Annotated[list[Path] | None, typer.Option("--file", "-f", help="File with seeds.")] = None,
    archive: Annotated[
        list[Path] | None,
        typer.Option("--archive", help="Output folder of the crawl, once for each; default: that of the settings."),
    ] = None,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="Without archives: what was in the lost shards is fetched again.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Restore shards whose data Redis has lost.

    A server that comes back without its data has lost its shards of the crawl, and replicas stop instead of taking them for
    finished ones. On a Redis Cluster, they go on with the shards of the other nodes, and may run during the repair. This
    command records the URLs in the archives as settled, plans the next visits of known pages as they were planned, and
    queues the links of all pages and the seeds. Give all seeds and the output folders of all machines. If Redis has lost
    everything, the crawl is created again with the settings that its replicas have written down beside its output. Settings
    that are given, such as in a file, change them one by one. If a repair is interrupted, repeat it.

    [bold]Examples[/bold]

        crawler repair -f seeds.txt

        crawler repair -f seeds.txt --archive /mnt/a/crawl-out --archive /mnt/b/crawl-out --redis redis://10.0.0.5
    """
    folders = [] if accept_loss else (archive or [access.settings.replica.out])
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; name the crawl's output folders with --archive")
    seeds = gather_seeds(access.settings.crawl, urls or (), file or ())

    async def work() -> Result:
        async with open_store(access.settings.replica) as store:
            return await _repair(store, await _opened(store, access, folders), access, seeds, folders)

    result = run_until_signal(work())
    if seeds and not result.shards:
        note("the seeds that are given were not queued; `crawler seed` queues those that are new")
    emit(result, json, _render(result), wraps=False)


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
    store: RedisStore, crawl: Crawl, access: CrawlAccess, seeds: Sequence[Seed], folders: Sequence[Path]
) -> Result:
    settings = CrawlSettings.from_json(crawl.settings)
    check_guarded(settings, accepted(access.settings), {"frontier.scorer"})
    clock = await crawl_clock(store, crawl)
    repair = Repair(store, crawl, clock, settings.limits.domain_cap)
    forgotten = await _forgotten(store, crawl, folders)
    await FieldTypes(store, crawl.keys).keep(types_of(folders, crawl.name))
    if not await repair.begin(forgotten):
        return Result([])
    from crawler.app.build import page_rules  # noqa: PLC0415 - imports the engine, which the help does not need

    rules, links = url_rules(settings), page_rules(settings, RecentUrls(1)).links
    restored = without_links = 0
    with contextlib.closing(LastVisits(scratch_folder(folders))) as visits:
        # A URL that was given up or denied, and then fetched, has a line of each kind. Its page counts.
        for is_done in (True, False):
            for lines in _batches(folders, crawl.name):
                of_kind = [line for line in lines if (line.outcome == Outcome.DONE) is is_done]
                restored += await repair.restore([_ended(line) for line in of_kind])
                concerned = [line for line in of_kind if repair.concerns(line.domain)]
                visits.add(concerned)
                for line in concerned:
                    if line.items:
                        repair.count_items(line.domain, {name: len(items) for name, items in line.items.items()})
        known = await _restore_visits(repair, visits.pages())
    queued = await repair.push(Entry(seed.url.href, seed.url.domain, seed.priority or 0.0) for seed in seeds)
    # After all pages, so that links to known domains only are judged by all of them.
    for lines in _batches(folders, crawl.name):
        for line in lines:
            queued += await repair.push(_found(line, links, rules))
            without_links += line.links is None and line.link_count > 0
    await repair.finish()
    return Result(sorted(repair.shards), restored, known, queued, without_links)


async def _restore_visits(repair: Repair, pages: Iterator[KnownPage]) -> int:
    restored = 0
    while batch := list(islice(pages, PAGES_AT_ONCE)):
        restored += await repair.restore_visits(batch)
    return restored


async def _forgotten(store: RedisStore, crawl: Crawl, folders: Sequence[Path]) -> frozenset[str]:
    """The marks of the domains that were forgotten: those that the crawl knows, and those of the folders, which it knows
    from now on."""
    control = Control(store, crawl.keys)
    await control.refresh()
    marks = control.rules.forgotten.union(*(marks_in(folder) for folder in folders))
    if marks > control.rules.forgotten:
        await control.restore_forgotten(marks - control.rules.forgotten)
    return marks


class _Line(VisitLine, kw_only=True):
    """The fields of a page line that a repair needs."""

    outcome: str
    reason: str
    status: int | None = None
    link_count: int = 0
    links: list[str] | None = None
    replica: str | None = None
    followed: dict[str, list[str]] | None = None
    items: dict[str, list[msgspec.Raw]] | None = None


_decoder = msgspec.json.Decoder(_Line)


def _batches(folders: Sequence[Path], crawl: str) -> Iterator[list[_Line]]:
    batch: list[_Line] = []
    for folder in folders:
        for path in line_files(folder):
            for line in decoded_lines(path, _decoder):
                if is_of_another(path, str(line.replica), crawl):
                    continue
                batch.append(line)
                if len(batch) == PAGES_AT_ONCE:
                    yield batch
                    batch = []
    yield batch


def _ended(line: _Line) -> Ended:
    return Ended(line.entry, line.outcome, line.reason)


def _found(line: _Line, links: LinkFilter, rules: UrlRules) -> list[Entry]:
    """The entries of the links of a page, those that its handler has chosen with their tags. How they were linked is not
    archived, except for redirects."""
    kind = LinkKind.REDIRECT if line.status is not None and 300 <= line.status < 400 else LinkKind.ANCHOR
    tags = {href: tag for tag, hrefs in (line.followed or {}).items() for href in hrefs}
    found = []
    for href in (line.links or ()) if line.followed is None else tags:
        try:
            found.append((canonicalize(href, rules=rules), kind))
        except BadUrl:  # the rules have changed since
            continue
    entries = links.select(found, line.entry)[0]
    return [msgspec.structs.replace(entry, tag=tags.get(entry.url, entry.tag)) for entry in entries]


def _render(result: Result) -> str:
    if not result.shards:
        return "no shard has lost its data"
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
