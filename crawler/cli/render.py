"""The terminal output of read-only commands: pure functions that turn data into text for rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crawler.cli.tables import TextTable
from crawler.observe.condition import Condition
from crawler.observe.counted_items import items_in_words, never_found_in_words, rejected_in_words
from crawler.observe.health_record import HealthRecord
from crawler.observe.snapshot import DomainRule, Snapshot, Status
from crawler.observe.summary import DomainLine, Summary
from crawler.wording import count_of, with_place

_BARS = "▁▂▃▄▅▆▇█"

SIDE_BY_SIDE = 120
"""Columns of a terminal from which the two lists of domains are side by side."""

WIDEST = 500
"""Columns. Tables are measured as if a terminal had this many, to find out how wide they want to be."""


class ShardLine(msgspec.Struct, frozen=True):
    """The shards of a replica, or the unowned ones if `replica` is empty. `first_since_ms`, `last_since_ms`: server times
    of the earliest and latest takeover, 0 for unowned shards."""

    replica: str
    shards: list[int]
    first_since_ms: int
    last_since_ms: int


def span(seconds: float) -> str:
    """Format a duration with a suitable unit."""
    for limit, divisor, unit in ((10, 1, "s"), (90, 1, "s"), (5_400, 60, "min"), (129_600, 3_600, "h")):
        if seconds < limit:
            return f"{seconds:.1f} s" if limit == 10 else f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def status(found: Status, place: str = "") -> RenderableType:
    """Return the output of `crawler status`. `place`: the options that select the crawl, for commands in the text."""
    grid = Table.grid(padding=(0, 3))
    name, revision = Text(f"crawl {found.crawl}", style="bold"), f"settings revision {found.settings_revision}"
    grid.add_row(name, condition(found.condition), count_of(found.shards, "shard"), revision)
    _marked(
        grid,
        f"accepted [b]{found.accepted:,}[/b]",
        f"done [green]{found.done:,}[/green]",
        f"denied {found.denied:,}",
        f"dead [red]{found.dead:,}[/red]" if found.dead else "dead 0",
    )
    _marked(
        grid,
        f"open [b]{found.open:,}[/b]",
        f"waiting {found.waiting:,}",
        f"retried {found.retried:,}",
        f"dropped {_by_reason(found.dropped)}",
    )
    _marked(
        grid,
        f"domains due {found.domains_due:,}",
        f"resting {_resting(found)}",
        f"leased {found.domains_leased:,}",
        f"pages cut {_by_reason(found.cut)}",
    )
    if _has_known_pages(found):
        _marked(grid, *_copies(found, bool(found.replicas)))
    if found.leases_expired:
        _marked(grid, f"leases expired {found.leases_expired:,}")
    behind = [Text(line, style="yellow") for line in settings_behind(found)]
    replicas = [Replicas(found.replicas)] if found.replicas else []
    listed: list[RenderableType] = [*_visits(found), *items(found), *replicas]
    advised = alerts(found.condition, bool(found.replicas), place or f"--crawl {found.crawl}")
    return Group(grid, *listed, *advised, *rules(found.rules), *behind)


def _has_known_pages(found: Summary) -> bool:
    """Whether pages were visited to be visited again, or will be, as after a repair."""
    return bool(found.visits or found.known or found.visits_due)


def _copies(found: Summary, has_replicas: bool) -> list[str]:
    """Return what is known of the copies of the pages that are visited again."""
    return [
        f"known pages {found.known + found.visits_due:,}",
        f"visits due {_visits_due(found, has_replicas)}",
        f"up to date {_percent(found.copies_fresh)}",
        f"in time {_percent(found.copies_in_time)}",
    ]


def _visits_due(found: Summary, has_replicas: bool) -> str:
    """Return how many visits are due. Only those that a replica has queued are counted."""
    if has_replicas or not found.known:
        return f"{found.visits_due:,}"
    return f"at least {found.visits_due:,}" if found.visits_due else "unknown until a replica runs"


def _percent(share: float | None) -> str:
    if share is None:
        return "unknown"
    return f"{100 * share:.1f} %" if 0.99 < share < 1 else f"{100 * share:.0f} %"


def _visits(found: Summary) -> list[Text]:
    """Return the line with the visits by what they found, if pages are visited again."""
    counted = sorted(found.visits.items(), key=lambda one: -one[1])
    visits = ", ".join(f"{name} {number:,}" for name, number in counted)
    return [Text.assemble(("visits", "bold"), "  ", visits)] if counted else []


def items(found: Status) -> list[Text]:
    """Return the lines with the items that were found, and with those that were rejected, if items are looked for."""
    lines = []
    if found.items or found.extracted:
        lines.append(("items", items_in_words(found.items, found.extracted, found.rejected)))
    if found.rejected:
        lines.append(("items rejected", rejected_in_words(found.rejected)))
    if found.never_found:
        lines.append(("never found", never_found_in_words(found.never_found)))
    return [Text.assemble((title, "bold"), "  ", text) for title, text in lines]


def _by_reason(counted: Mapping[str, int]) -> str:
    """Return the sum, with the reasons if there are any."""
    total, reasons = f"{sum(counted.values()):,}", sorted(counted, key=lambda reason: -counted[reason])
    return f"{total} ({', '.join(reasons)})" if reasons else total


_STYLES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}


def condition(found: Condition) -> Text:
    return Text(found.word, style=_STYLES[found.level])


def alerts(found: Condition, is_attended: bool, place: str) -> list[Text]:
    """Return what keeps the crawl from making progress, and what to do about it. `is_attended`: whether replicas run;
    `place`: the options that select the crawl."""
    style = _STYLES["bad" if found.level == "bad" else "warn"]
    lines = [Text(line, style=style) for line in with_place(found.obstacles, place)]
    advice = _advice(found.word, is_attended, place)
    return [*lines, Text(advice, style="yellow")] if advice else lines


def _advice(word: str, is_attended: bool, place: str) -> str:
    run, resume = f"crawler run {place}", f"crawler resume {place}"
    match word:
        case "paused" if is_attended:
            return f"to continue: {resume}"
        case "paused" | "stopped":
            return f"to continue: {resume}\nthen start replicas: {run}"
        case "stopping":
            return "the replicas finish the requests in flight"
        case "data lost":
            return f"restore the data of Redis, or the shards from the archives: crawler repair {place}"
        case "page limit reached":
            return "to continue, raise limits.max_pages and start replicas again"
        case "no replica":
            return f"no replica runs; start one with: {run}"
        case _:
            return ""


def rules(found: Sequence[DomainRule], shown: int | None = None) -> list[Text]:
    """Return a line for the domains that an operator has blocked, and one for those with a delay; at most `shown` of each,
    None for all."""
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
    """Return the screen of `crawler top`. `place`: the options that select the crawl; `rows`: the most rows in each
    list; `hint`: the keys that work."""
    parts: list[RenderableType] = [Text.assemble(_headline(snapshot), (f"  {hint}", "dim"))]
    if snapshot.error:
        parts.append(old(snapshot.error, snapshot.age_s))
    parts += alerts(snapshot.condition, bool(snapshot.replicas), place or f"--crawl {snapshot.crawl}")
    if snapshot.summary is not None:
        parts += [_figures(snapshot.summary, bool(snapshot.replicas)), *_visits(snapshot.summary)]
    parts += rules(snapshot.rules, rows)
    if snapshot.replicas:
        parts.append(_panel("replicas", Replicas(snapshot.replicas)))
    if snapshot.summary is not None:
        parts.append(_TwoLists(snapshot.summary, rows))
    if snapshot.replicas:
        parts.append(_panel("recent failures", failures(snapshot.replicas, rows)))
    return Group(*parts)


def old(error: str, age_s: float) -> Text:
    """Return the notice that the data below it are old. `error`: why there are no newer ones."""
    return Text(f"{error}\nwaiting for Redis; the data below are {span(age_s)} old", style="bold red")


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim")


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
    unowned = f"[yellow]{summary.shards_unowned} unowned[/yellow]" if summary.shards_unowned and has_replicas else owned
    overdue_ms = summary.at_ms - summary.oldest_due_ms if summary.oldest_due_ms else 0
    cells = [
        f"done [b]{summary.done:,}[/b]",
        f"queued [b]{summary.queued:,}[/b]",
        f"leased {summary.leased:,}",
        f"waiting {summary.waiting:,}",
        f"denied {summary.denied:,}",
        f"dead [red]{summary.dead:,}[/red]" if summary.dead else "dead 0",
        f"domains {summary.domains:,}",
        f"domains due {summary.domains_due:,}",
        f"domains resting {_resting(summary)}",
        f"domains leased {summary.domains_leased:,}",
        *([f"overdue {span(overdue_ms / 1000)}"] if has_replicas else []),  # otherwise all wait for a replica
        f"{count_of(summary.shards, 'shard')}, {unowned}",
        *(_copies(summary, has_replicas) if _has_known_pages(summary) else []),
    ]
    return Columns([Text.from_markup(cell) for cell in cells], padding=(0, 3, 0, 0), equal=True)


def _resting(found: Summary) -> str:
    """Return the number of domains that rest, and when the first is due if none is due now."""
    next_s = (found.next_due_ms - found.at_ms) / 1000 if found.next_due_ms else 0
    return f"{found.domains_resting:,}" + (f", next in {span(next_s)}" if next_s else "")


def _marked(grid: Table, *cells: str) -> None:
    """Add a row of cells with rich's markup, which must not contain text of strangers."""
    grid.add_row(*map(Text.from_markup, cells))


class Replicas:
    """The table of replicas. Where it is too wide for the terminal, the addresses of the live pages follow it, so that none
    is cut off."""

    def __init__(self, records: Sequence[HealthRecord]) -> None:
        self._records = records

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self._table(with_address=True)
        if Measurement.get(console, options.update(width=WIDEST), whole).maximum <= options.max_width:
            yield whole
            return
        yield self._table(with_address=False)
        for record in self._records:
            name = f"live page of {record.index or record.replica}: "
            yield Text.assemble((name, "dim"), _address(record), overflow="fold")

    def _table(self, with_address: bool) -> TextTable:
        headings = [">#", "replica", ">shards", ">domains", ">in flight", ">pages", ">pages/s", ">MB"]
        made = TextTable(*headings, *["live page"] * with_address)
        for record in self._records:
            made.add_row(
                str(record.index or "-"),
                record.replica,
                str(record.shards),
                f"{record.domains:,}",
                str(record.busy),
                f"{record.pages:,}",
                f"{record.pages_per_s:,.1f}",
                f"{record.rss_mb:.0f}",
                *[_address(record)] * with_address,
            )
        return made


def _address(record: HealthRecord) -> str:
    return f"http://{record.address}/"


class _TwoLists:
    """The lists of domains: side by side, or one below the other in a narrow terminal."""

    def __init__(self, summary: Summary, rows: int) -> None:
        self._summary = summary
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        panels = [
            _panel(title, domains(lines[: self._rows], self._summary.at_ms))
            for title, lines in (("most queued", self._summary.busiest), ("due last", self._summary.resting))
        ]
        if options.max_width < SIDE_BY_SIDE:
            yield from panels
            return
        grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        grid.add_row(*panels)
        yield grid


def domains(lines: Sequence[DomainLine], now_ms: int) -> RenderableType:
    if not lines:
        return Text("none", style="dim")
    made = TextTable("domain", ">queued", "when", "why", wraps="why")
    for line in lines:
        when = "being fetched" if line.held == "leased" else _when(line.at_ms - now_ms)
        made.add_row(line.domain, f"{line.queued:,}", when, why(line))
    return made


def _when(ms: int) -> str:
    return f"in {span(ms / 1000)}" if ms > 0 else f"due for {span(-ms / 1000)}"


def why(line: DomainLine) -> str:
    """Return why a domain waits: its robots.txt, the rate limit of its address, retries, its failures and its delay."""
    if line.robots:
        return f"robots.txt unreachable ({line.robots})"
    if line.is_rate_limited:
        return "address rate limit"
    if line.held == "waiting" and not line.failures:
        return "retry"
    failures = [f"{line.failures} x {line.reason or 'failed'}"] if line.failures else []
    delay = [] if line.delay_ms is None else [f"{span(line.delay_ms / 1000)} delay"]
    return ", ".join(failures + delay)


def failures(records: Sequence[HealthRecord], rows: int) -> RenderableType:
    found = sorted((one for record in records for one in record.recent_failures), key=lambda one: -one.at_ms)[:rows]
    if not found:
        return Text("none", style="dim")
    made = TextTable("reason", "then", "URL")
    for one in found:
        made.add_row(one.reason, "given up" if one.outcome == "dead" else "tried again", one.url)
    return made


def shards(lines: Sequence[ShardLine], total: int, now_ms: float) -> RenderableType:
    """Return the table of `crawler shards`: the shards of each replica, and since when it has them."""
    made = TextTable("replica", ">shards", ">share", ">held for", "which", wraps="which")
    for line in lines:
        name = line.replica or Text("unowned, with work", style="yellow")
        held = "-" if not line.last_since_ms else f"{span((now_ms - line.last_since_ms) / 1000)} or more"
        share = f"{100 * len(line.shards) / total:.1f} %"
        made.add_row(name, str(len(line.shards)), share, held, _ranges(line.shards))
    return made


def _ranges(numbers: Sequence[int], shown: int = 8) -> str:
    """Return sorted numbers as ranges, such as "0-3, 7, 9-12 ..."; at most `shown` of them."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    text = ", ".join("-".join(map(str, part)) for part in parts[:shown])
    return text if len(parts) <= shown else f"{text} ..."
