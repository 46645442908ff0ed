"""The terminal output of read-only commands: pure functions that turn data into text for rich."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from crawler.observe.health_record import HealthRecord
from crawler.observe.snapshot import Snapshot, Status
from crawler.observe.summary import DomainLine, Summary

_BARS = "▁▂▃▄▅▆▇█"


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


def table(*columns: str, wraps: str = "") -> Table:
    """Return a table without borders. A column whose name begins with ">" is right-aligned. `wraps`: the name of the column
    whose long lines are wrapped; those of the others are truncated."""
    made = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if column == wraps else "ellipsis"
        made.add_column(column.lstrip(">"), justify=justify, no_wrap=column != wraps, overflow=overflow)
    return made


def status(found: Status) -> RenderableType:
    """Return the output of `crawler status`."""
    grid = Table.grid(padding=(0, 3))
    name, revision = Text(f"crawl {found.crawl}", style="bold"), f"settings revision {found.settings_revision}"
    grid.add_row(name, f"{found.shards} shards", revision, "")
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
        f"dropped {sum(found.dropped.values()):,}",
    )
    _marked(
        grid,
        f"domains due {found.domains_due:,}",
        f"leased {found.domains_leased:,}",
        f"leases expired {found.leases_expired:,}",
        f"pages cut {sum(found.cut.values()):,}",
    )
    behind = [Text(line, style="yellow") for line in settings_behind(found)]
    return Group(grid, replicas(found.replicas, found.crawl), *behind)


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


def top(snapshot: Snapshot, rows: int = 8) -> RenderableType:
    """Return the screen of `crawler top`. `rows`: the most rows in each list."""
    parts: list[RenderableType] = [_headline(snapshot)]
    if snapshot.error:
        return Group(*parts, Text(snapshot.error, style="red"))
    if snapshot.summary is not None:
        parts.append(_figures(snapshot.summary, snapshot.replicas))
    parts.append(_panel("replicas", replicas(snapshot.replicas, snapshot.crawl)))
    if snapshot.summary is not None:
        parts.append(_two_lists(snapshot.summary, rows))
    parts.append(_panel("recent failures", failures(snapshot.replicas, rows)))
    return Group(*parts)


def _panel(title: str, content: RenderableType) -> Panel:
    return Panel(content, title=title, title_align="left", border_style="dim")


def _headline(snapshot: Snapshot) -> RenderableType:
    state = "Redis away" if snapshot.error else {"pause": "paused", "stop": "stopped"}.get(snapshot.state, "running")
    style = "bold green" if state == "running" else "bold yellow"
    rate = sum(record.pages_per_s for record in snapshot.replicas)
    text = Text.assemble((snapshot.crawl, "bold"), "  ", (state, style), "  ", (f"{rate:,.1f} pages/s", "bold"))
    if snapshot.summary is not None and snapshot.summary.rates:
        text.append("  " + sparkline(snapshot.summary.rates[-60:]), style="cyan")
    return text


def sparkline(values: Sequence[float]) -> str:
    """Return `values` as a row of bars, scaled to the highest."""
    most = max([*values, 1e-9])
    return "".join(_BARS[min(7, int(8 * value / most))] for value in values)


def _figures(summary: Summary, records: Sequence[HealthRecord]) -> RenderableType:
    grid = Table.grid(padding=(0, 4, 0, 0))
    _marked(
        grid,
        f"done [b]{summary.done:,}[/b]",
        f"queued [b]{summary.queued:,}[/b]",
        f"leased {summary.leased:,}",
        f"waiting {summary.waiting:,}",
        f"denied {summary.denied:,}",
        f"dead [red]{summary.dead:,}[/red]" if summary.dead else "dead 0",
    )
    unowned = f"[yellow]{summary.shards_unowned} unowned[/yellow]" if summary.shards_unowned else "all owned"
    overdue_ms = summary.at_ms - summary.oldest_due_ms if summary.oldest_due_ms else 0
    _marked(
        grid,
        f"domains {summary.domains:,}",
        f"due {summary.domains_ready:,}",
        f"resting {summary.domains_due - summary.domains_ready:,}",
        f"leased {summary.domains_leased:,}",
        f"{summary.shards} shards, {unowned}",
        f"overdue {span(overdue_ms / 1000)}",
    )
    return grid


def _marked(grid: Table, *cells: str) -> None:
    """Add a row of cells with rich's markup, which must not contain text of strangers."""
    grid.add_row(*map(Text.from_markup, cells))


def replicas(records: Sequence[HealthRecord], crawl: str) -> RenderableType:
    if not records:
        return Text(f"no replica runs; start one with: crawler run --crawl {crawl}", style="yellow")
    headings = (">#", "replica", ">shards", ">domains", ">in flight", ">pages", ">pages/s", ">MB", "live page")
    made = table(*headings, wraps="live page")
    for record in records:
        made.add_row(
            str(record.index or "-"),
            record.replica,
            str(record.shards),
            f"{record.visits:,}",
            str(record.busy),
            f"{record.pages:,}",
            f"{record.pages_per_s:,.1f}",
            f"{record.rss_mb:.0f}",
            Text("Redis away", style="red") if record.redis_away else f"http://{record.address}/",
        )
    return made


def _two_lists(summary: Summary, rows: int) -> RenderableType:
    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    grid.add_column(ratio=1)
    grid.add_column(ratio=1)
    busiest = domains(summary.busiest[:rows], summary.at_ms)
    resting = domains(summary.resting[:rows], summary.at_ms)
    grid.add_row(_panel("most queued", busiest), _panel("due last", resting))
    return grid


def domains(lines: Sequence[DomainLine], now_ms: int) -> RenderableType:
    if not lines:
        return Text("none", style="dim")
    made = table("domain", ">queued", "when", "why")
    for line in lines:
        when = "being fetched" if line.held == "leased" else _when(line.at_ms - now_ms)
        made.add_row(line.domain, f"{line.queued:,}", when, why(line))
    return made


def _when(ms: int) -> str:
    return f"in {span(ms / 1000)}" if ms > 0 else f"due for {span(-ms / 1000)}"


def why(line: DomainLine) -> str:
    """Return why a domain waits: the rate limit of its address, its failures, or its delay."""
    if line.is_rate_limited:
        return "address rate limit"
    if line.failures:
        return f"{line.failures} x {line.reason or 'failed'}"
    return "" if line.delay_ms is None else f"{span(line.delay_ms / 1000)} delay"


def failures(records: Sequence[HealthRecord], rows: int) -> RenderableType:
    found = sorted((one for record in records for one in record.recent_failures), key=lambda one: -one.at_ms)[:rows]
    if not found:
        return Text("none", style="dim")
    made = table("reason", "then", "URL")
    for one in found:
        made.add_row(
            one.reason, "given up" if one.outcome == "dead" else "tried again", Text(one.url, overflow="ellipsis")
        )
    return made


def shards(lines: Sequence[ShardLine], total: int, now_ms: float) -> RenderableType:
    """Return the table of `crawler shards`: the shards of each replica, and since when it has them."""
    made = table("replica", ">shards", ">share", ">held for", "which")
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
