"""The terminal output of `crawler crawl`: a live display while it runs, and a summary at the end."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crawler.app.supervisor import Supervisor
from crawler.cli import render
from crawler.observe.snapshot import Status, status
from frontier.counters import Counts
from frontier.crawls import open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore

REFRESH_S = 0.5


async def follow(store: RedisStore, crawl: str, supervisor: Supervisor, console: Console | None) -> int:
    """Run the replicas until they end, with a live display on `console` (None: no display). Returns the exit code."""
    running = asyncio.create_task(supervisor.run())
    if console is None or not console.is_terminal:
        return await running
    started = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not running.done():
            try:
                found = await status(store, await open_crawl(store, crawl), exact=False)
                live.update(live_view(found, time.monotonic() - started), refresh=True)
            except FrontierError as error:
                live.update(Text(f"waiting for Redis: {error}", style="yellow"), refresh=True)
            await asyncio.wait([running], timeout=REFRESH_S)
    return running.result()


def live_view(found: Status, elapsed_s: float) -> RenderableType:
    """Return the live display: the progress of the crawl, and its replicas."""
    settled = found.done + found.denied + found.dead
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"{elapsed_s:5.0f} s"),
        ProgressBar(total=max(found.accepted, 1), completed=settled, width=40),
        Text(f"{settled:,} of {found.accepted:,} known URLs"),
        Text(f"{sum(record.pages_per_s for record in found.replicas):,.0f} pages/s", style="bold green"),
    )
    return Group(head, render.status(found))


async def summarize(store: RedisStore, crawl: str, out: Path, console: Console) -> Status | None:
    """Print the closing summary of a crawl, and return the status that it shows; None if Redis is away."""
    try:
        found = await status(store, await open_crawl(store, crawl))
    except FrontierError as error:
        console.print(f"no summary: {error}", style="yellow")
        return None
    console.print(summary(found, out))
    return found


def has_failed(found: Status, good_before: int) -> bool:
    """Return whether the crawl has ended without a page in this run: no URL was left and no response was successful.
    `good_before`: the successful responses of earlier runs."""
    return not found.open and good_pages(found) <= good_before


def good_pages(counts: Counts) -> int:
    """Return how many responses had a status below 400."""
    statuses = {name.removeprefix("done:"): number for name, number in counts.reasons.items() if name[:5] == "done:"}
    return sum(number for status, number in statuses.items() if not status.isdigit() or int(status) < 400)


def summary(found: Status, out: Path) -> RenderableType:
    """Return the closing summary, from the crawl's counters, which cover all runs of the crawl."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_column(style="dim")
    statuses = sorted((reason[5:], count) for reason, count in found.reasons.items() if reason.startswith("done:"))
    table.add_row("pages", f"{found.done:,}", _listed(statuses))
    table.add_row(
        "bytes", f"{found.received_bytes:,}", f"{found.received_bytes / max(found.done, 1) / 1024:.1f} KiB a page"
    )
    table.add_row("rate", f"{found.pages_per_s:,.1f}/s", f"over {found.crawled_s:,.1f} s")
    table.add_row("domains", f"{found.domains:,}", "")
    table.add_row("denied", f"{found.denied:,}", _reasons(found, "denied"))
    table.add_row("retries", f"{found.retried:,}", _reasons(found, "retry"))
    table.add_row("dead", f"{found.dead:,}", _reasons(found, "dead"))
    table.add_row("duplicates", f"{found.duplicates:,}", "bodies that were archived before")
    if found.cut:
        table.add_row("cut", f"{sum(found.cut.values()):,}", _listed(sorted(found.cut.items())))
    if found.open:
        table.add_row("left", f"{found.open:,}", how_to_continue(found))
    return Group(Text(f"crawl {found.crawl}", style="bold"), table, Text(f"output in {out}/", style="green"))


def how_to_continue(found: Status) -> str:
    """Return what to do about the URLs that are left."""
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
