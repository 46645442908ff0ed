"""What people see in the terminal: tables, the screens of `crawler status`, `top`, `domains` and `shards`, and the live
display and closing summary of `crawler crawl`. They show what `crawler.observe` has found out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from math import ceil
from pathlib import Path

import msgspec
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from crawler.app.supervisor import Supervisor
from crawler.logs import STDERR
from crawler.observe.health import HealthRecord
from crawler.observe.status import (
    ENDING,
    STARTING,
    Condition,
    DomainRule,
    LastRead,
    Snapshot,
    Status,
    failing_in_words,
    how_to_allow,
    items_in_words,
    never_found_in_words,
    put_off_in_words,
    rejected_in_words,
    rendered_in_words,
)
from crawler.observe.status import status as read_status
from crawler.observe.summary import DomainLine, Summary
from crawler.wording import DEFAULT_NAME, count_of, with_place
from frontier.clock import SystemClock
from frontier.counters import NOT_NAMED, Counters, Counts
from frontier.crawls import open_crawl
from frontier.errors import FrontierError, RedisAway
from frontier.store import RedisStore

_BARS = "▁▂▃▄▅▆▇█"

REFRESH_S = 0.5

SUMMARY_TRIES, SUMMARY_PAUSE_S = 3, 1.0
"""How often the summary is read if Redis is away, and the seconds in between: a server that was killed is back by then."""

A_DAY_MS = 86_400_000

LONGEST_LINE = 1 << 20
"""Bytes of a line of a log: tracebacks and URLs are far shorter."""

LAST_LINES_S = 1.0
"""Seconds for the last lines of the logs to arrive after the replicas have ended."""


# tables


class TextTable(Table):
    """A table with these columns. Long texts continue in the next line.

    A column whose name begins with ">" has numbers: it is right-aligned and never broken. Nor is the column `keeps`, for a
    name that has to be complete."""

    def __init__(self, *columns: str, keeps: str = "") -> None:
        super().__init__(box=None, header_style="bold", padding=(0, 2, 0, 0))
        for name in columns:
            is_number = name.startswith(">")
            self.add_column(
                name.lstrip(">"),
                justify="right" if is_number else "left",
                no_wrap=is_number or name == keeps,
                overflow="fold",
            )

    def add(self, *cells: str | Text) -> None:
        self.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


# status, top, domains, shards


class ShardLine(msgspec.Struct, frozen=True):
    """The shards of a replica, unowned ones if it is "". Server times of the first and last takeover, 0 for unowned
    ones."""

    replica: str
    shards: list[int]
    first_since_ms: int
    last_since_ms: int


def span(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    for limit, divisor, unit in ((90, 1, "s"), (5_400, 60, "min"), (129_600, 3_600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def status(found: Status, place: str = "") -> RenderableType:
    """Return the output of `crawler status`. `place`: the options that select the crawl, for commands in the text."""
    place = place or f"--crawl {found.crawl}"
    return Group(
        Text.assemble(
            (f"crawl {found.crawl}", "bold"),
            "  ",
            condition(found.condition),
            f"  settings revision {found.settings_revision}",
        ),
        _figures(found, bool(found.replicas)),
        *_numbers("visits", found.visits),
        *_numbers("links dropped", found.dropped),
        *_numbers("pages cut", found.cut),
        *(
            Text.assemble(("items rejected" if name == "rejected" else name, "bold"), "  ", words)
            for name, _, words in _items(found)
        ),
        *([replicas(found.replicas)] if found.replicas else []),
        *(Text.assemble(("failing", "bold"), "  ", words) for words in with_place(failing_in_words(found), place)),
        *alerts(found.condition, bool(found.replicas), place),
        *rules(found.rules),
        *(Text(line, style="yellow") for line in settings_behind(found)),
    )


def _copies(found: Summary, has_replicas: bool) -> list[str]:
    if not (found.visits or found.known or found.visits_due):
        return []
    due = f"{found.visits_due:,}"
    if not has_replicas and found.known:  # only the visits that a replica has queued are counted
        due = f"at least {due}" if found.visits_due else "unknown until a replica runs"
    return [
        f"known pages {found.known + found.visits_due:,}",
        f"visits due {due}",
    ]


def _numbers(name: str, counts: Mapping[str, int]) -> list[Text]:
    """Return a line with `counts`, the highest first; none if there are none."""
    numbers = ", ".join(f"{one} {number:,}" for one, number in _most_first(counts))
    return [Text.assemble((name, "bold"), "  ", numbers)] if numbers else []


def _most_first(counts: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: -item[1])


def _items(found: Status) -> list[tuple[str, int, str]]:
    """Return the lines about rendering, URLs that were put off, and items: each as a name, a number and words."""
    lines = []
    if found.rendered:
        lines.append(("rendered", sum(found.rendered.values()), rendered_in_words(found.rendered)))
    if words := put_off_in_words(found.shapes):
        lines.append(("put off", found.reasons.get("denied:put_off", 0), words))
    if found.items or found.extracted:
        words = items_in_words(found.items, found.extracted, found.rejected)
        lines.append(("items", sum(found.items.values()), words))
    if found.rejected:
        lines.append(("rejected", sum(found.rejected.values()), rejected_in_words(found.rejected)))
    if found.never_found:
        lines.append(("never found", len(found.never_found), never_found_in_words(found.never_found)))
    return lines


_STYLES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}


def condition(found: Condition) -> Text:
    return Text(found.word, style=_STYLES[found.level])


def alerts(found: Condition, is_attended: bool, place: str) -> list[Text]:
    """Return what keeps the crawl waiting, and what to do. `is_attended`: replicas run; `place`: options for the crawl."""
    style = _STYLES["bad" if found.level == "bad" else "warn"]
    lines = [Text(line, style=style) for line in with_place(found.obstacles, place)]
    word = "stopped" if found.word == "paused" and not is_attended else found.word
    advice = _ADVICE.get(word, "").format(run=f"crawler run {place}", resume=f"crawler resume {place}", place=place)
    return [*lines, Text(advice, style="yellow")] if advice else lines


_ADVICE = {
    "paused": "to continue: {resume}",
    "stopped": "to continue: {resume}\nthen start replicas: {run}",
    "stopping": "the replicas finish the requests in flight",
    "page limit reached": "to continue, raise limits.max_pages with `crawler config apply FILE {place}`, or with "
    "`crawler crawl --max-pages NUMBER --apply-settings`",
    "limit reached": "to continue, raise it with `crawler config apply FILE {place}`, or in the settings of "
    "`crawler crawl` with --apply-settings",
    "no replica": "no replica runs; start one with: {run}",
}
"""Condition -> what to do about it."""


def rules(found: Sequence[DomainRule], shown: int | None = None) -> list[Text]:
    """Return the lines of blocked domains and of delays; at most `shown` of each, None for all."""
    blocked = [rule.domain for rule in found if rule.delay_s is None]
    delayed = [f"{rule.domain} {rule.delay_s:g} s" for rule in found if rule.delay_s is not None]
    return [
        Text.assemble((title, "bold"), "  ", ", ".join(names[:shown]))
        + (f" and {len(names) - shown:,} more" if shown and names[shown:] else "")
        for title, names in (("blocked", blocked), ("delays", delayed))
        if names
    ]


def settings_behind(found: Status) -> list[str]:
    """Return a line for each replica that does not apply the latest revision of the crawl's settings."""
    lines = []
    for record in found.replicas:
        if record.settings_revision < found.settings_revision:
            line = f"replica {record.index or record.replica} runs settings revision {record.settings_revision}"
            if record.settings_refused:
                line += f", since it cannot use the later one: {record.settings_refused}"
            elif record.settings_waiting:
                line += f"; restart it for {', '.join(record.settings_waiting)}"
            lines.append(line)
    return lines


def top(snapshot: Snapshot, place: str = "", rows: int = 8, hint: str = "") -> RenderableType:
    """Return the screen of `crawler top`. `rows`: the most rows in each list; `hint`: the keys that work."""
    parts: list[RenderableType] = [Text.assemble(_headline(snapshot), (f"  {hint}", "dim"))]
    if snapshot.error:
        parts.append(old(snapshot.error, snapshot.age_s))
    parts += alerts(snapshot.condition, bool(snapshot.replicas), place or f"--crawl {snapshot.crawl}")
    if snapshot.summary is not None:
        parts += [_figures(snapshot.summary, bool(snapshot.replicas)), *_numbers("visits", snapshot.summary.visits)]
    parts += rules(snapshot.rules, rows)
    if snapshot.replicas:
        parts.append(_panel("replicas", replicas(snapshot.replicas)))
    if snapshot.summary is not None:
        lists = (("most queued", snapshot.summary.busiest), ("due last", snapshot.summary.resting))
        panels = [_panel(title, domains(lines[:rows], snapshot.summary.at_ms)) for title, lines in lists]
        parts.append(Columns(panels))
    if snapshot.replicas:
        parts.append(_panel("recent failures", failures(snapshot.replicas, rows)))
    return Group(*parts)


def old(error: str, age_s: float) -> Text:
    """Return the notice that the data below it are old. `error`: why there are no newer ones."""
    return Text(f"{error}\nwaiting for Redis; the data below are {span(age_s)} old", style="bold red")


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim", expand=False)


def _headline(snapshot: Snapshot) -> Text:
    text = Text.assemble((snapshot.crawl, "bold"), "  ", condition(snapshot.condition))
    if snapshot.replicas and not snapshot.error:
        rate = sum(record.pages_per_s for record in snapshot.replicas)
        text.append(f"  {rate:,.1f} pages/s", style="bold")
    if snapshot.summary is not None and snapshot.summary.samples:
        text.append("  " + sparkline([sample.pages for sample in snapshot.summary.samples[-30:]]), style="cyan")
    return text


def sparkline(values: Sequence[float]) -> str:
    """Return `values` as a row of bars, scaled to the highest."""
    most = max([*values, 1e-9])
    return "".join(_BARS[min(7, int(8 * value / most))] for value in values)


def _figures(summary: Summary, has_replicas: bool) -> RenderableType:
    owned = "all owned" if has_replicas else "none owned"
    if summary.shards_unowned and has_replicas:
        owned = f"[yellow]{summary.shards_unowned} unowned[/yellow]"
    overdue_ms = summary.at_ms - summary.oldest_due_ms if summary.oldest_due_ms else 0
    next_s = (summary.next_due_ms - summary.at_ms) / 1000 if summary.next_due_ms else 0
    cells = [  # with rich's markup, so they must not contain text of strangers
        f"accepted {summary.accepted:,}",
        f"done [green]{summary.done:,}[/green]",
        f"queued [b]{summary.queued:,}[/b]",
        f"leased {summary.leased:,}",
        f"waiting {summary.waiting:,}",
        _denied(summary),
        f"dead [red]{summary.dead:,}[/red]" if summary.dead else "dead 0",
        f"retried {summary.retried:,}",
        *(
            [f"requisites {summary.requisites_settled:,} of {summary.requisites_found:,}"]
            if summary.requisites_found
            else []
        ),
        f"domains {summary.domains:,}",
        f"domains due {summary.domains_due:,}",
        f"domains resting {summary.domains_resting:,}" + (f", next in {span(next_s)}" if next_s else ""),
        f"domains leased {summary.domains_leased:,}",
        *([f"leases expired {summary.leases_expired:,}"] if summary.leases_expired else []),
        *([f"overdue {span(overdue_ms / 1000)}"] if has_replicas else []),  # otherwise all wait for a replica
        f"{count_of(summary.shards, 'shard')}, {owned}",
        *_copies(summary, has_replicas),
    ]
    return Columns([Text.from_markup(cell) for cell in cells], padding=(0, 3, 0, 0), equal=True)


def replicas(records: Sequence[HealthRecord]) -> RenderableType:
    """Return the table of replicas, and below it where they listen, so that no address is broken in a narrow terminal."""
    table = TextTable(">#", "replica", ">shards", ">domains", ">in flight", ">pages", ">pages/s", ">MB")
    addresses = []
    for record in records:
        table.add(
            str(record.index or "-"),
            record.replica,
            str(record.shards),
            f"{record.domains:,}",
            str(record.busy),
            f"{record.pages:,}",
            f"{record.pages_per_s:,.1f}",
            f"{record.rss_mb:.0f}",
        )
        free = "" if record.disk_free is None else f" ({record.disk_free / 1e9:,.1f} GB free)"
        name = f"live page of {record.index or record.replica}{free}: "
        addresses.append(Text.assemble((name, "dim"), f"http://{record.address}/", overflow="fold"))
    return Group(table, *addresses)


def domains(lines: Sequence[DomainLine], now_ms: int) -> RenderableType:
    if not lines:
        return Text("none", style="dim")
    table = TextTable("domain", ">queued", "when", "why")
    for line in lines:
        when = "being fetched" if line.held == "leased" else _when(line.at_ms - now_ms)
        table.add(line.domain, f"{line.queued:,}", when, why(line))
    return table


def _when(ms: int) -> str:
    return f"in {span(ms / 1000)}" if ms > 0 else f"due for {span(-ms / 1000)}"


def why(line: DomainLine) -> str:
    """Return why a domain waits: its robots.txt, a limit, retries, its failures and its delay."""
    if line.robots:
        return f"robots.txt unreachable ({line.robots})" + (f": {line.origin}" if line.origin else "")
    if line.limit:
        return f"waits for {line.limit}"
    if line.held == "waiting" and not line.failures:
        return "retry"
    failures = [f"{line.failures} x {line.reason or 'failed'}"] if line.failures else []
    delay = [] if line.delay_ms is None else [f"{span(line.delay_ms / 1000)} delay"]
    return ", ".join(failures + delay)


def failures(records: Sequence[HealthRecord], rows: int) -> RenderableType:
    found = sorted((one for record in records for one in record.recent_failures), key=lambda one: -one.at_ms)[:rows]
    if not found:
        return Text("none", style="dim")
    table = TextTable("reason", "then", "URL")
    for one in found:
        table.add(one.reason, "given up" if one.outcome == "dead" else "tried again", one.url)
    return table


def shards(lines: Sequence[ShardLine], total: int, now_ms: float) -> RenderableType:
    """Return the table of `crawler shards`: the shards of each replica, and since when it has them."""
    table = TextTable("replica", ">shards", ">share", ">held for", "which")
    for line in lines:
        name = line.replica or Text("unowned, with work", style="yellow")
        held = "-" if not line.last_since_ms else f"{span((now_ms - line.last_since_ms) / 1000)} or more"
        share = f"{100 * len(line.shards) / total:.1f} %"
        table.add(name, str(len(line.shards)), share, held, _ranges(line.shards))
    return table


def _ranges(numbers: Sequence[int], shown: int = 8) -> str:
    """Return sorted numbers as ranges, such as "0-3, 7, 9-12 ..."; at most `shown` of them."""
    # Numbers of one range have the same distance from their place in the list.
    grouped = (list(group) for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]))
    ranges = [f"{group[0][1]}-{group[-1][1]}" if group[1:] else str(group[0][1]) for group in grouped]
    return ", ".join(ranges[:shown]) + " ..." * (len(ranges) > shown)


# keys


@contextlib.contextmanager
def quit_key(ended: asyncio.Event) -> Iterator[None]:
    """Set `ended` when the user presses q. If standard input is not a terminal, nothing is read from it."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(terminal)

    def read() -> None:
        pressed = os.read(terminal, 64)
        if not pressed or b"q" in pressed.lower():  # nothing: the terminal was closed
            ended.set()

    try:
        tty.setcbreak(terminal)  # keys arrive at once and are not shown; Ctrl-C still interrupts
        loop.add_reader(terminal, read)
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


# a crawl on this machine


@contextlib.asynccontextmanager
async def log_above(console: Console | None) -> AsyncIterator[int]:
    """Yield the file descriptor for the log of replicas: standard error, or with a live display on `console` a pipe,
    whose lines appear above the display and stay there."""
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
    """Run the replicas, with a live display on `console` unless it is None. Returns the exit code."""
    running = asyncio.create_task(supervisor.run())
    if console is None or not console.is_terminal:
        return await running

    async def read() -> Status:
        return await read_status(store, await open_crawl(store, crawl, for_reshard=True), exact=False)

    started, last, has_run = time.monotonic(), LastRead[Status](SystemClock()), False
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while not running.done():
            await last.update(read())
            has_run = has_run or (last.value is not None and bool(last.value.replicas))
            elapsed_s = time.monotonic() - started
            shown = [live_view(last.value, elapsed_s, place, has_run)] if last.value is not None else []
            if last.error:
                shown.insert(0, old(last.error, last.age_s))
            live.update(Group(*shown), refresh=True)
            await asyncio.wait([running], timeout=REFRESH_S)
    return running.result()


def live_view(found: Status, elapsed_s: float, place: str = "", has_run: bool = False) -> RenderableType:
    """Return the live display. `has_run`: a replica has reported since the command was started."""
    settled, most = found.settled, found.accepted
    progress = f"{settled:,} of {count_of(most, 'seen URL')}"
    if found.max_pages:
        settled, most = found.done, found.max_pages
        progress = f"{settled:,} of at most {count_of(most, 'page')}"
    head = Table.grid(padding=(0, 2))
    head.add_row(
        Text(f"{elapsed_s:5.0f} s"),
        ProgressBar(total=max(most, 1), completed=settled, width=20),
        Text(progress),
        Text(f"{sum(record.pages_per_s for record in found.replicas):,.0f} pages/s", style="bold green"),
    )
    if found.condition.word == "no replica":  # this command starts them, and waits for their end
        found = msgspec.structs.replace(found, condition=ENDING if has_run else STARTING)
    return Group(head, status(found, place))


class ThisRun(msgspec.Struct, frozen=True):
    """A run of `crawler crawl`. `before`: the counters at its start; `visits`: whether pages are visited again."""

    before: Counts
    took_s: float
    delay_s: float = 0.0
    visits: bool = False


async def summarize(
    store: RedisStore, crawl: str, out: Path, console: Console, place: str, run: ThisRun | None = None
) -> Status | None:
    """Print the closing summary, and return the status in it; None if Redis stays away. `run`: the run that ends."""
    tries_left, next_visit_ms = SUMMARY_TRIES, 0
    while True:
        try:
            opened = await open_crawl(store, crawl, for_reshard=True)
            found = await read_status(store, opened)
            if run is not None and run.visits:
                next_visit_ms = await Counters(store, opened.keys).next_visit_ms()
            if not found.shards_away or tries_left == 1:
                break
        except FrontierError as error:
            if tries_left == 1 or not isinstance(error, RedisAway):
                console.print(f"no summary: {error}", style="yellow")
                return None
        tries_left -= 1
        await asyncio.sleep(SUMMARY_PAUSE_S)
    if run is not None:
        console.print(summary_of_run(found, run, next_visit_ms))
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


_REFUSED = {"401": "Unauthorized", "403": "Forbidden", "407": "Proxy Authentication Required"}
_REDIRECTS = ("301", "302", "303", "307", "308")


_IN_HANDLERS = ("handler_failed", "handler_timeout")


def failed_in_handlers(found: Status) -> str:
    """Return what to do about pages whose handlers have failed; empty if none has."""
    failed = {reason: number for reason, number in _reasons(found, "dead").items() if reason in _IN_HANDLERS}
    if not failed:
        return ""
    requeue = " and ".join(f"`crawler dead requeue --reason {reason}`" for reason in failed)
    return f"{count_of(sum(failed.values()), 'page')} failed in handlers: repair them, then {requeue}"


def found_nothing(found: Status, seeds: int) -> str:
    """Return what may help if the crawl has ended with its `seeds` alone; empty if it found more."""
    statuses = _reasons(found, "done")
    pages = sum(number for status, number in statuses.items() if status.isdigit() and 200 <= int(status) < 300)
    refused = {status: number for status, number in statuses.items() if status in _REFUSED}
    if refused and not pages and not found.open:
        said = ", ".join(f"{number:,} with {status} ({_REFUSED[status]})" for status, number in refused.items())
        return f"the site refused {said}: if it wants a login, a rule in [[requests]] sends one; see `crawler try URL`"
    if found.open or 0 < found.max_pages <= found.done or not 0 < pages <= seeds:
        return ""
    if unfollowed := found.dropped.get("nofollow", 0):
        count = count_of(unfollowed, "link") + (" says" if unfollowed == 1 else " say")
        return f"no page but the seeds was found: {count} nofollow, and are followed only with scope.nofollow = false"
    hint = (
        "no page but the seeds was found: they have no links in the scope of the crawl. If the site builds its pages with "
        "JavaScript, give its sitemap or more of its pages as seeds; `crawler try URL` shows the links of a page"
    )
    redirects = sum(number for status, number in statuses.items() if status in _REDIRECTS)
    if redirects:
        hint += (
            f". {count_of(redirects, 'URL')} redirected: if to a login, the session that a rule in [[requests]] sends "
            "may have ended"
        )
    return hint


def has_failed(found: Status, good_before: int) -> bool:
    """Return whether this run ended without a page. `good_before`: successful responses of earlier runs."""
    return not found.open and good_pages(found) <= good_before


def good_pages(counts: Counts) -> int:
    statuses = _reasons(counts, "done")
    return sum(number for status, number in statuses.items() if not status.isdigit() or int(status) < 400)


def _denied(counts: Counts) -> str:
    """Return the cell of denied URLs, with rich's markup. All that were accepted are in it: the guessed sitemaps, too."""
    absent = counts.denied - counts.denied_named
    return f"denied {counts.denied_named:,}" + (f" [dim](+{absent:,} no_sitemap)[/dim]" if absent else "")


def _reasons(counts: Counts, outcome: str) -> dict[str, int]:
    start = f"{outcome}:"
    return {
        name.removeprefix(start): number
        for name, number in _most_first(counts.reasons)
        if name.startswith(start) and name != NOT_NAMED
    }


def summary_of_run(found: Status, run: ThisRun, next_visit_ms: int = 0) -> RenderableType:
    """Return the summary of one run, with what other replicas did meanwhile. `next_visit_ms`: 0 for never."""
    before, pages = run.before, max(0, found.done - run.before.done)
    statuses, found_by, errors = (
        _more(after, earlier)
        for after, earlier in (
            (_reasons(found, "done"), _reasons(before, "done")),
            (found.visits, before.visits),
            (_reasons(found, "dead"), _reasons(before, "dead")),
        )
    )
    retries, rate = max(0, found.retried - before.retried), f"{pages / max(run.took_s, 0.001):,.1f} pages/s"
    delays_s = run.delay_s * max(0, pages + retries - 1)
    if found.domains == 1 and run.took_s / 2 < delays_s <= run.took_s:
        rate += f", as politeness.delay is {run.delay_s:g} s"
    table = _figures_table()
    table.add_row("pages", f"{pages:,}", _listed(sorted(statuses.items())))
    if found_by:
        table.add_row("visits", f"{sum(found_by.values()):,}", _listed(_most_first(found_by)))
    words = [f"retried:\u00a0{retries:,}"] if retries else []
    table.add_row("errors", f"{sum(errors.values()):,}", "  ".join([*words, _listed(_most_first(errors)[:6])]).strip())
    if denied := _more(_reasons(found, "denied"), _reasons(before, "denied")):
        table.add_row("denied", f"{sum(denied.values()):,}", _listed(_most_first(denied)[:6]))
    table.add_row("time", span(run.took_s), rate if pages else "")
    if next_visit_ms and not found.open:
        in_ms = next_visit_ms - found.at_ms
        when = datetime.fromtimestamp(next_visit_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        notes = [when] if pages else [when, "nothing was due"]
        if not pages and 0 < in_ms <= A_DAY_MS:
            notes.append(f"(--due-within {ceil(in_ms / 3_600_000)}h visits it now)")
        table.add_row("next visit", f"in {span(in_ms / 1000)}" if in_ms > 0 else "now", "  ".join(notes))
    return Group(Text("this run", style="bold"), table)


def _more(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    return {name: grown for name, number in after.items() if (grown := number - before.get(name, 0)) > 0}


def _figures_table() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    return table


def summary(found: Status, out: Path, place: str = "") -> RenderableType:
    """Return the closing summary of all runs of the crawl."""
    table = _figures_table()
    table.add_row("pages", f"{found.done:,}", _listed(sorted(_reasons(found, "done").items())))
    if found.restored:
        table.add_row("", f"{found.restored:,}", "of these restored by a repair; bytes and rate leave them out")
    if found.requisites:
        fetched = sum(number for reason, number in found.requisites.items() if reason.isdigit())
        table.add_row("requisites", f"{fetched:,}", _listed(_most_first(found.requisites)[:6]))
    if found.extras:
        table.add_row("extra requests", f"{sum(found.extras.values()):,}", _listed(_most_first(found.extras)[:6]))
    each = found.received_bytes / max(found.fetched, 1) / 1024
    with_requisites = " with its requisites" if found.requisites else ""
    table.add_row("bytes", f"{found.received_bytes:,}", f"{each:.1f} KiB a page{with_requisites}")
    if found.fetched > 1:  # the rate is that between the first page and the last
        table.add_row("rate", f"{found.pages_per_s:,.1f}/s", f"over {found.crawled_s:,.1f} s")
    table.add_row("domains", f"{found.domains:,}", "")
    for name, outcome, number in (
        ("denied", "denied", found.denied_named),
        ("retries", "retry", found.retried),
        ("dead", "dead", found.dead),
    ):
        table.add_row(name, f"{number:,}", _listed(list(_reasons(found, outcome).items())[:6]))
    table.add_row("duplicates", f"{found.duplicates:,}", "bodies that were archived before")
    if found.cut:
        table.add_row("cut", f"{sum(found.cut.values()):,}", _listed(sorted(found.cut.items())))
    if found.repaired:
        table.add_row("repaired", f"{sum(found.repaired.values()):,}", _listed(sorted(found.repaired.items())))
    for name, number, words in _items(found):
        table.add_row(name, f"{number:,}", words)
    if found.open:
        table.add_row("left", f"{found.open:,}", how_to_continue(found))
    denied = [reason for reason in ("forbidden_port", "forbidden_address") if found.reasons.get(f"denied:{reason}")]
    allowing = with_place([f"{reason}: {how_to_allow(reason)}" for reason in denied], place)
    remedies = [Text(line, style="yellow") for line in allowing]
    if plain := found.reasons.get("denied:no_https"):
        who = count_of(plain, "seed")
        remedies.append(Text(f"{who} without a scheme: https does not answer there, so http is used", style="yellow"))
    name = "the crawl" if found.crawl == DEFAULT_NAME else f"crawl {found.crawl}"
    title = Text(f"{name}, all its runs", style="bold")
    return Group(title, table, *remedies, Text(f"output in {out}/", style="green"))


def how_to_continue(found: Status) -> str:
    if found.replicas:
        return f"{count_of(len(found.replicas), 'other replica')} still running"
    if found.max_pages and found.done >= found.max_pages:
        more = 2 * found.max_pages
        return (
            f"limits.max_pages = {found.max_pages} is reached: to continue, run the same command with a higher limit, "
            f"such as --max-pages {more} --apply-settings"
        )
    if found.condition.word == "limit reached":
        limit = found.condition.obstacles[0].partition(" ")[0]
        return f"{limit} is reached: to continue, raise it and run the same command again with --apply-settings"
    return "run the same command again to continue"


def _listed(counts: list[tuple[str, int]]) -> str:
    """Return names and numbers as a line that wraps only between pairs."""
    return "  ".join(f"{name}:\u00a0{count:,}" for name, count in counts)
