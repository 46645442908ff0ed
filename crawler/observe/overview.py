"""The state of a crawl, read from Redis only, for `crawler status`, the live display and the closing summary."""

from __future__ import annotations

from collections import Counter

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crawler.observe.health_record import HealthRecord, health_records
from crawler.settings.model import CrawlSettings
from frontier.counters import Counters, Counts
from frontier.crawls import Crawl
from frontier.store import RedisStore


class Overview(msgspec.Struct, frozen=True):
    """The state of a crawl at server time `at_ms`. `owned`: the number of shards that each replica was the last to lease
    from."""

    crawl: str
    at_ms: float
    shards: int
    replicas: list[HealthRecord]
    owned: dict[str, int]
    accepted: int
    done: int
    denied: int
    dead: int
    retried: int
    waiting: int
    open: int
    seen: int
    domains_due: int
    domains_leased: int
    leases_expired: int
    domains: int
    received_bytes: int
    duplicates: int
    first_ms: int  # when the first page was settled, 0 if none was
    last_ms: int  # when the last one was
    reasons: dict[str, int]  # "outcome:reason" -> URLs
    dropped: dict[str, int]
    cut: dict[str, int]  # reason -> pages of which a part is missing
    settings_revision: int
    max_pages: int  # 0 for no limit

    @property
    def crawled_s(self) -> float:
        """Seconds from the first settled page to the last."""
        return max(0.001, (self.last_ms - self.first_ms) / 1000)

    @property
    def pages_per_s(self) -> float:
        return self.done / self.crawled_s


async def read(store: RedisStore, crawl: Crawl) -> Overview:
    """Read the state of `crawl`. Raises RedisAway."""
    keys = crawl.keys
    counters = Counters(store, keys)
    counts: Counts = await counters.counts()
    owners = Counter(owner.replica for owner in await counters.owners())
    return Overview(
        crawl=crawl.name,
        at_ms=await store.time_ms(),
        shards=len(keys.shards),
        replicas=await health_records(store, keys),
        owned=dict(owners),
        accepted=counts.accepted,
        done=counts.done,
        denied=counts.denied,
        dead=counts.dead,
        retried=counts.retried,
        waiting=counts.waiting,
        open=counts.open,
        seen=counts.seen,
        domains_due=counts.domains_due,
        domains_leased=counts.domains_leased,
        leases_expired=counts.leases_expired,
        domains=counts.domains,
        received_bytes=counts.received_bytes,
        duplicates=counts.duplicates,
        first_ms=counts.first_ms,
        last_ms=counts.last_ms,
        reasons=dict(counts.reasons),
        dropped=dict(counts.dropped),
        cut=dict(counts.cut),
        settings_revision=crawl.revision,
        max_pages=CrawlSettings.from_json(crawl.settings).limits.max_pages,
    )


def render(found: Overview) -> RenderableType:
    """Return the overview as text for a terminal."""
    behind = [Text(line, style="yellow") for line in settings_behind(found)]
    return Group(_counters_table(found), _replicas_table(found), *behind)


def settings_behind(found: Overview) -> list[str]:
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


def _counters_table(found: Overview) -> Table:
    table = Table.grid(padding=(0, 3))
    name, revision = Text(f"crawl {found.crawl}", style="bold"), f"settings revision {found.settings_revision}"
    table.add_row(name, f"{found.shards} shards", revision, "")
    table.add_row(
        f"accepted [b]{found.accepted:,}[/b]",
        f"done [green]{found.done:,}[/green]",
        f"denied {found.denied:,}",
        f"dead [red]{found.dead:,}[/red]" if found.dead else "dead 0",
    )
    table.add_row(
        f"open [b]{found.open:,}[/b]",
        f"waiting {found.waiting:,}",
        f"retried {found.retried:,}",
        f"dropped {sum(found.dropped.values()):,}",
    )
    table.add_row(
        f"domains due {found.domains_due:,}",
        f"leased {found.domains_leased:,}",
        f"leases expired {found.leases_expired:,}",
        f"pages cut {sum(found.cut.values()):,}",
    )
    return table


def _replicas_table(found: Overview) -> RenderableType:
    if not found.replicas:
        return Text("no replica runs; start one with: crawler run --crawl " + found.crawl, style="yellow")
    table = Table(box=None, header_style="bold", padding=(0, 2))
    for heading, justify in (
        ("#", "right"),
        ("replica", "left"),
        ("shards", "right"),
        ("domains", "right"),
        ("pages", "right"),
        ("pages/s", "right"),
        ("MB", "right"),
        ("live page", "left"),
    ):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for record in found.replicas:
        table.add_row(
            str(record.index or "-"),
            record.replica,
            str(record.shards),
            str(record.visits),
            f"{record.pages:,}",
            f"{record.pages_per_s:,.1f}",
            f"{record.rss_mb:.0f}",
            "Redis away" if record.redis_away else f"http://{record.address}/",
        )
    return table
