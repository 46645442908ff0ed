"""What a crawl has used so far of CPU, memory, network and disk, as far as Redis and the output folder tell: the input of
`crawler plan --from-crawl`. And how much memory Redis has left, for `crawler reshard`."""

from __future__ import annotations

import contextlib
import glob
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from crawler.observe import summary
from crawler.observe.health import health_records
from crawler.plan.arithmetic import CrawlFigures, FileFigures
from crawler.sinks.line_search import is_of, line_files, lines_in
from crawler.sinks.open_files import finished_path, open_either
from crawler.sinks.segment import LINES
from frontier.clock import crawl_ms
from frontier.cluster import NodeFacts
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


async def read_crawl(store: RedisStore, crawl: Crawl) -> CrawlFigures:
    """Read what Redis knows about `crawl`. Raises RedisAway."""
    now_ms = int(await crawl_ms(store, crawl.keys.peers)())
    found = await summary.take(store, crawl.keys, now_ms, "", ())
    servers = await masters(store)
    records = [record for record in await health_records(store, crawl.keys) if record.cpu_s]
    return CrawlFigures(
        pages=found.done,
        urls=found.accepted - found.later_visits,
        queued=found.open + found.dead,
        domains=found.domains,
        shards=found.shards,
        crawled_s=found.crawled_s if found.done else 0.0,
        redis_bytes=sum(_number(one, "used_memory") - _number(one, "used_memory_startup") for one in servers),
        redis_cpu_s=sum(_number(one, "used_cpu_user") + _number(one, "used_cpu_sys") for one in servers),
        replica_pages=sum(record.pages for record in records),
        replica_cpu_s=sum(record.cpu_s for record in records),
    )


async def masters(store: RedisStore) -> list[dict[str, str]]:
    """Return the INFO of the server, or of the masters of a cluster. Raises RedisAway."""
    nodes = (await store.node_facts()).values()
    infos = [node.info for node in nodes if isinstance(node, NodeFacts) and node.is_master]
    return infos or [await store.info("memory") | await store.info("cpu")]


async def memory_left(store: RedisStore) -> float:
    """Return the bytes that Redis may still use: up to its limits, or all memory of its machines, once for each server.
    Infinite if a server does not tell. Raises RedisAway."""
    return sum(map(_left, await masters(store)))


def _left(info: Mapping[str, str]) -> float:
    most = _number(info, "maxmemory") or _number(info, "total_system_memory") or math.inf
    return max(0.0, most - _number(info, "used_memory"))


def _number(info: Mapping[str, str], name: str) -> float:
    return float(info.get(name, 0))


def read_files(folders: Sequence[Path], crawl: str) -> FileFigures | None:
    """Return what the output files of `crawl` in `folders` say, from a sample of their lines. None without a line."""
    tables = sorted(path for folder in folders for path in line_files(folder) if is_of(path, crawl))
    texts = [text for path in tables[:: -(-len(tables) // FILES) or 1] for text in _sample(path)]
    if not texts:
        return None
    lines = [msgspec.json.decode(text, type=_Line) for text in texts]
    done = [line for line in lines if line.outcome == "done"]
    rows = sum(map(_size, tables)) * len(texts) / sum(map(len, texts))
    return FileFigures(
        pages=rows * len(done) / len(lines),
        page_bytes=_mean(line.decoded_size or 0 for line in done),
        received_bytes=_mean(line.size or 0 for line in done),
        links=_mean(line.link_count or 0 for line in done),
        linked_domains=_linked_domains(done),
        response_s=_mean((line.elapsed_ms or 0) / 1_000 for line in done),
        url_bytes=_mean(_after_host(url) for line in done for url in (line.links or [line.url])[:LINKS]),
        disk_bytes=sum(_size(path) for table in tables for path in _volume(table) if ".journal" not in path.name),
        tls=_mean(line.url.startswith("https:") for line in done),
    )


def _linked_domains(done: Sequence[_Line]) -> float | None:
    """Return the mean number of domains that a page links to. None if no line has links (`archive.links`)."""
    if all(line.links is None for line in done):
        return None
    return max(1.0, _mean(len({domain_of(host_of(url)) for url in line.links or ()}) for line in done))


def _volume(table: Path) -> Iterable[Path]:
    """Return the files that were written together with `table`."""
    return table.parent.glob(glob.escape(table.name.partition(LINES)[0]) + ".*")


def _sample(path: Path) -> list[bytes]:
    """Return complete lines from all over the file `path`, all of a short one."""
    size = _size(path)
    if size <= PARTS * PART_BYTES:
        return list(lines_in(path))
    found = []
    # Not through an iterator: it would read on to the next part.
    with open(open_either(path), "rb") as lines:  # noqa: PTH123 - a file descriptor
        for part in range(PARTS):
            lines.seek(size * part // PARTS)
            found += lines.read(PART_BYTES).split(b"\n")[1:-1]
    return [line + b"\n" for line in found]


def _size(path: Path) -> int:
    """Return the size of `path`, which may have been finished and renamed, or 0 if it is gone."""
    for name in (path, finished_path(path)):
        with contextlib.suppress(OSError):
            return name.stat().st_size
    return 0


def _after_host(url: str) -> int:
    return len(url.partition("://")[2].partition("/")[2]) + 1


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0
