"""What a crawl has used so far of CPU, memory, network and disk, as far as Redis and the output folder tell."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from crawler.cli.reshard import figures_of_servers
from crawler.observe import summary
from crawler.observe.health import health_records
from crawler.plan.arithmetic import Workload
from crawler.sinks.files import LINES, finished_path, open_either
from crawler.sinks.lines import is_of, line_files, lines_in
from frontier.clock import crawl_ms
from frontier.crawls import Crawl
from frontier.domains import domain_of, host_of
from frontier.store import RedisStore

FILES, PARTS, PART_BYTES = 50, 16, 1 << 20
"""How much of the pages table is read: at most 16 parts of a megabyte of each of 50 files, from all over them."""

LINKS = 10
"""Links of a page whose length is looked at."""


class _Line(msgspec.Struct):
    """The columns that matter here."""

    url: str
    outcome: str | None = None
    size: int | None = None
    decoded_size: int | None = None
    link_count: int | None = None
    elapsed_ms: int | None = None
    links: list[str] | None = None


@dataclass(frozen=True, slots=True)
class CrawlFigures:
    """What Redis knows of a crawl. `pages`: settled as done; `urls`: ever accepted; `queued`: open or dead. `redis_bytes`
    and `redis_cpu_s` are those of the servers since their start, other users included; 0 if they are unknown.
    `replica_pages` and `replica_cpu_s`: of the replicas that run, since their start."""

    pages: float
    urls: float
    queued: float
    domains: float
    shards: float
    crawled_s: float
    redis_bytes: float = 0
    redis_cpu_s: float = 0
    replica_pages: float = 0
    replica_cpu_s: float = 0


@dataclass(frozen=True, slots=True)
class FileFigures:
    """What the output files say: their `pages` and all their `disk_bytes`, and means per page. `page_bytes` is after
    content decoding, `received_bytes` before. `linked_domains`: None if the files have no links. `tls`: share of pages over
    HTTPS."""

    pages: float
    page_bytes: float
    received_bytes: float
    links: float
    linked_domains: float | None
    response_s: float
    url_bytes: float
    disk_bytes: float
    tls: float

    @property
    def workload(self) -> dict[str, Any]:
        """What the files say about the workload, by the names of `Workload`."""
        linked = {} if self.linked_domains is None else {"linked_domains": self.linked_domains}
        return linked | {
            "page_bytes": self.page_bytes,
            "links_per_page": self.links,
            "url_bytes": self.url_bytes,
            "response_s": self.response_s,
            "transfer": self.received_bytes / self.page_bytes if self.page_bytes else 1.0,
            "tls": self.tls,
        }


def own_workload(crawl: CrawlFigures, files: FileFigures | None, delay_s: float) -> Workload:
    """Return the workload of the crawl itself, with the same assumptions as in a plan about what cannot be read."""
    work = Workload(
        pages=crawl.pages,
        days=max(1.0, crawl.crawled_s) / 86_400,
        domains=max(1.0, crawl.domains),
        urls=crawl.urls,
        queued=crawl.queued,
        delay_s=delay_s,
        shards=crawl.shards,
    )
    return replace(work, **files.workload) if files else work


async def read_crawl(store: RedisStore, crawl: Crawl) -> CrawlFigures:
    """Read what Redis knows about `crawl`. Raises RedisAway."""
    now_ms = int(await crawl_ms(store, crawl.keys.peers)())
    taken = await summary.take(store, crawl.keys, now_ms, "", ())
    servers = await figures_of_servers(store)
    records = [record for record in await health_records(store, crawl.keys) if record.cpu_s]
    return CrawlFigures(
        pages=taken.done,
        urls=taken.accepted - taken.later_visits,
        queued=taken.open + taken.dead,
        domains=taken.domains,
        shards=taken.shards,
        crawled_s=taken.crawled_s if taken.done else 0.0,
        redis_bytes=sum(server["used_memory"] - server["used_memory_startup"] for server in servers),
        redis_cpu_s=sum(server["used_cpu_user"] + server["used_cpu_sys"] for server in servers),
        replica_pages=sum(record.pages for record in records),
        replica_cpu_s=sum(record.cpu_s for record in records),
    )


def read_files(folders: Sequence[Path], crawl: str) -> FileFigures | None:
    """Return what the output files of `crawl` in `folders` say, from a sample of their lines. None without a line."""
    tables = sorted(path for folder in folders for path in line_files(folder) if is_of(path, crawl))
    texts = [text for path in tables[:: -(-len(tables) // FILES) or 1] for text in _sample(path)]
    if not texts:
        return None
    lines = [msgspec.json.decode(text, type=_Line) for text in texts]
    done = [line for line in lines if line.outcome == "done"]
    volumes = [(table.parent, glob.escape(table.name.partition(LINES)[0])) for table in tables]
    written = [path for folder, name in volumes for path in folder.glob(f"{name}.*")]
    linked = _mean(len({domain_of(host_of(url)) for url in line.links or ()}) for line in done)
    rows = sum(map(_size, tables)) * len(texts) / sum(map(len, texts))
    return FileFigures(
        pages=rows * len(done) / len(lines),
        page_bytes=_mean(line.decoded_size or 0 for line in done),
        received_bytes=_mean(line.size or 0 for line in done),
        links=_mean(line.link_count or 0 for line in done),
        linked_domains=max(1.0, linked) if any(line.links is not None for line in done) else None,
        response_s=_mean((line.elapsed_ms or 0) / 1_000 for line in done),
        url_bytes=_mean(len(url.split("/", 3)[-1]) + 1 for line in done for url in (line.links or [line.url])[:LINKS]),
        disk_bytes=sum(_size(path) for path in written if ".journal" not in path.name),
        tls=_mean(line.url.startswith("https:") for line in done),
    )


def _sample(path: Path) -> list[bytes]:
    """Return complete lines from all over the file `path`, all of a short one."""
    size = _size(path)
    if size <= PARTS * PART_BYTES:
        return list(lines_in(path))
    parts = []
    # Not through an iterator: it would read on to the next part.
    with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
        for part in range(PARTS):
            lines.seek(size * part // PARTS)
            parts += lines.read(PART_BYTES).split(b"\n")[1:-1]
    return [line + b"\n" for line in parts]


def _size(path: Path) -> int:
    """Return the size of `path`, which may have been finished and renamed, or 0 if it is gone."""
    for name in (path, finished_path(path)):
        with contextlib.suppress(OSError):
            return name.stat().st_size
    return 0


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0
