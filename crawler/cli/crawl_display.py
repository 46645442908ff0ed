"""The terminal output of `crawler crawl`: a live display while it runs, and a summary at the end. `crawler.observe.web` has
the live page."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crawler.app.supervisor import Supervisor
from crawler.cli import render
from crawler.observe.condition import ENDING, STARTING
from crawler.observe.counted_items import items_in_words, never_found_in_words, rejected_in_words
from crawler.observe.refusals import remedy
from crawler.observe.snapshot import LastRead, Status, status
from crawler.wording import count_of, with_place
from frontier.clock import SystemClock
from frontier.counters import Counts
from frontier.crawls import open_crawl
from frontier.errors import FrontierError, RedisAway
from frontier.store import RedisStore

REFRESH_S = 0.5

SUMMARY_TRIES, SUMMARY_PAUSE_S = 3, 1.0
"""How often the summary is read if Redis is away, and the seconds in between: a server that was killed is back by then."""

STDERR = 2
"""The file descriptor of standard error."""

LONGEST_LINE = 1 << 20
"""Bytes of a line of a log: tracebacks and URLs are far shorter."""

LAST_LINES_S = 1.0
"""Seconds for the last lines of the logs to arrive after the replicas have ended."""


@contextlib.asynccontextmanager
async def log_above(console: Console | None) -> AsyncIterator[int]:
    """Yield the file descriptor to which replicas write their log. With a live display on `console`, their lines appear
    above it and stay there; the display would otherwise erase them. Without one, it is standard error."""
    if console is None or not console.is_terminal:
        yield STDERR
        return
    inlet, outlet = os.pipe()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(inlet, "rb")
    )

    async def copy() -> None:
        while line := await reader.readline():
            console.print(line.decode(errors="replace").rstrip(), soft_wrap=True)

    copying = asyncio.create_task(copy())
    try:
        yield outlet
    finally:
        os.close(outlet)
        await asyncio.wait({copying}, timeout=LAST_LINES_S)  # a process that a replica left behind may keep it open
        copying.cancel()
        transport.close()


async def follow(
    store: RedisStore, crawl: str, supervisor: Supervisor, console: Console | None, place: str = ""
) -> int:
    """Run the replicas until they end, with a live display on `console` (None: no display). Returns the exit code.
    `place`: the options that select the crawl, for commands in the display."""
    running = asyncio.create_task(supervisor.run())
    if console is None or not console.is_terminal:
        return await running

    async def read() -> Status:
        return await status(store, await open_crawl(store, crawl, for_reshard=True), exact=False)

    started, last, has_run = time.monotonic(), LastRead[Status](SystemClock()), False
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not running.done():
            await last.update(read())
            has_run = has_run or (last.value is not None and bool(last.value.replicas))
            elapsed_s = time.monotonic() - started
            shown = [live_view(last.value, elapsed_s, place, has_run)] if last.value is not None else []
            if last.error:
                shown.insert(0, render.old(last.error, last.age_s))
            live.update(Group(*shown), refresh=True)
            await asyncio.wait([running], timeout=REFRESH_S)
    return running.result()


def live_view(found: Status, elapsed_s: float, place: str = "", has_run: bool = False) -> RenderableType:
    """Return the live display: the progress of the crawl, what keeps it from continuing, and its replicas. `has_run`: a
    replica has reported since the command was started."""
    settled = found.done + found.denied + found.dead
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"{elapsed_s:5.0f} s"),
        ProgressBar(total=max(found.accepted, 1), completed=settled, width=20),
        Text(f"{settled:,} of {count_of(found.accepted, 'seen URL')}"),
        Text(f"{sum(record.pages_per_s for record in found.replicas):,.0f} pages/s", style="bold green"),
    )
    if found.condition.word == "no replica":  # this command starts them, and waits for their end
        found = msgspec.structs.replace(found, condition=ENDING if has_run else STARTING)
    return Group(head, render.status(found, place))


async def summarize(store: RedisStore, crawl: str, out: Path, console: Console, place: str) -> Status | None:
    """Print the closing summary of a crawl, and return the status that it shows; None if Redis stays away. `place`: the
    options that select the crawl, for commands in the summary."""
    tries_left = SUMMARY_TRIES
    while True:
        try:
            found = await status(store, await open_crawl(store, crawl, for_reshard=True))
            if not found.shards_away or tries_left == 1:
                break
        except FrontierError as error:
            if tries_left == 1 or not isinstance(error, RedisAway):
                console.print(f"no summary: {error}", style="yellow")
                return None
        tries_left -= 1
        await asyncio.sleep(SUMMARY_PAUSE_S)
    console.print(summary(found, out, place))
    of_all, missing = f"of {count_of(found.shards, 'shard')}", list[str]()
    if found.shards_away:
        missing.append(
            f"{found.shards_away:,} {of_all} cannot be read, so the numbers are too low: see `crawler status` later"
        )
    if found.shards_lost:
        missing.append(f"Redis has lost the data of {found.shards_lost:,} {of_all}: run `crawler repair`")
    for line in with_place(missing, place):
        console.print(line, style="yellow")
    return found


def has_failed(found: Status, good_before: int) -> bool:
    """Return whether the crawl has ended without a page in this run: no URL was left and no response was successful.
    `good_before`: the successful responses of earlier runs."""
    return not found.open and good_pages(found) <= good_before


def good_pages(counts: Counts) -> int:
    """Return how many responses had a status below 400."""
    statuses = {name.removeprefix("done:"): number for name, number in counts.reasons.items() if name[:5] == "done:"}
    return sum(number for status, number in statuses.items() if not status.isdigit() or int(status) < 400)


def summary(found: Status, out: Path, place: str = "") -> RenderableType:
    """Return the closing summary, from the crawl's counters, which cover all runs of the crawl. `place`: the options that
    select the crawl, for commands in it."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    statuses = sorted((reason[5:], count) for reason, count in found.reasons.items() if reason.startswith("done:"))
    table.add_row("pages", f"{found.done:,}", _listed(statuses))
    if found.restored:
        table.add_row("", f"{found.restored:,}", "of these restored by a repair; bytes and rate leave them out")
    each = found.received_bytes / max(found.fetched, 1) / 1024
    table.add_row("bytes", f"{found.received_bytes:,}", f"{each:.1f} KiB a page")
    if found.fetched > 1:  # the rate is that between the first page and the last
        table.add_row("rate", f"{found.pages_per_s:,.1f}/s", f"over {found.crawled_s:,.1f} s")
    table.add_row("domains", f"{found.domains:,}", "")
    table.add_row("denied", f"{found.denied:,}", _reasons(found, "denied"))
    table.add_row("retries", f"{found.retried:,}", _reasons(found, "retry"))
    table.add_row("dead", f"{found.dead:,}", _reasons(found, "dead"))
    table.add_row("duplicates", f"{found.duplicates:,}", "bodies that were archived before")
    if found.cut:
        table.add_row("cut", f"{sum(found.cut.values()):,}", _listed(sorted(found.cut.items())))
    if found.items or found.extracted:
        table.add_row(
            "items", f"{sum(found.items.values()):,}", items_in_words(found.items, found.extracted, found.rejected)
        )
    if found.rejected:
        table.add_row("rejected", f"{sum(found.rejected.values()):,}", rejected_in_words(found.rejected))
    if found.never_found:
        table.add_row("never found", f"{len(found.never_found):,}", never_found_in_words(found.never_found))
    if found.open:
        table.add_row("left", f"{found.open:,}", how_to_continue(found))
    denied = [reason for reason in ("forbidden_port", "forbidden_address") if found.reasons.get(f"denied:{reason}")]
    allowing = with_place([f"{reason}: {remedy(reason)}" for reason in denied], place)
    remedies = [Text(line, style="yellow") for line in allowing]
    return Group(Text(f"crawl {found.crawl}", style="bold"), table, *remedies, Text(f"output in {out}/", style="green"))


def how_to_continue(found: Status) -> str:
    """Return what to do about the URLs that are left."""
    if found.replicas:
        return f"{count_of(len(found.replicas), 'other replica')} still running"
    if found.max_pages and found.done >= found.max_pages:
        more = 2 * found.max_pages
        return (
            f"limits.max_pages = {found.max_pages} is reached: to continue, run the same command with a higher limit, "
            f"such as --max-pages {more} --apply-settings"
        )
    return "run the same command again to continue"


def _reasons(found: Status, outcome: str) -> str:
    start = outcome + ":"
    counts = [(reason[len(start) :], count) for reason, count in found.reasons.items() if reason.startswith(start)]
    return _listed(sorted(counts, key=lambda pair: -pair[1])[:6])


def _listed(counts: list[tuple[str, int]]) -> str:
    """Return names and numbers as a line that wraps only between pairs."""
    return "  ".join(f"{name}:\u00a0{count:,}" for name, count in counts)
