"""Replaces the constants of the plan by those of a crawl: each group is scaled so that the crawl's own workload would use
what the crawl has used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from crawler.plan.arithmetic import Usage, Workload, are_packed, usage_of
from crawler.plan.constants import Constants
from crawler.plan.numbers import short
from crawler.wording import count_of

LEAST_PAGES, LEAST_CPU_S, LEAST_BYTES = 100, 5.0, 4_000_000
"""Of less, startup and rounding are too large a part."""

FARTHEST = 5.0
"""By which factor a crawl may differ from the constants. What is farther away is not of the crawl: a reshard, other users
of the server, or long waiting."""


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


@dataclass(frozen=True, slots=True)
class Calibration:
    """`constants`: those to use. `given`: what the crawl says about the workload, by the names of `Workload`. `notes`: what
    was read, and what could not be."""

    constants: Constants
    given: dict[str, float]
    notes: tuple[str, ...]


def calibrate(constants: Constants, found: CrawlFigures, files: FileFigures | None, delay_s: float) -> Calibration:
    """Return the constants of the crawl with these figures, whose delay is `delay_s`."""
    if found.pages < LEAST_PAGES:
        pages = count_of(int(found.pages), "page")
        note = f"the crawl has {pages}, too few to measure: all constants are the built-in ones"
        return Calibration(constants, {}, (note,))
    given = {
        "delay_s": delay_s,
        "urls_per_page": found.urls / found.pages,
        "queued_per_page": found.queued / found.pages,
    }
    notes = []
    if files is None:
        notes.append(
            "no lines in the output folder: size, links, duration and TLS of pages, and files per page are built-in"
        )
    else:
        given |= files.workload
        linked = "" if files.linked_domains is None else ", linked domains"
        pages = count_of(int(files.pages), "page")
        notes.append(f"read {pages} of the output folder: size, links{linked}, duration, TLS, length of URLs")
    work = own_workload(found, files, delay_s)
    expected = usage_of(work, constants)
    for prefix, name, used, would_use, missing in _groups(found, files, expected, work, constants):
        if missing:
            notes.append(f"{name}: {missing}; the constants are the built-in ones")
            continue
        ratio = used / would_use
        if not 1 / FARTHEST <= ratio <= FARTHEST:
            notes.append(
                f"{name}: {short(ratio)} times what the built-in constants say, which is not of the crawl alone (a "
                "reshard, other users, long waiting); the constants are the built-in ones"
            )
            continue
        constants = scaled(constants, prefix, ratio)
        if prefix == "disk_":
            given["compression"] = work.compression * ratio
        notes.append(f"{name}: {ratio:.2f} times what the built-in constants say; they are scaled")
    return Calibration(constants, given, tuple(notes))


def scaled(constants: Constants, prefix: str, ratio: float) -> Constants:
    """Return `constants` with those that begin with `prefix` multiplied by `ratio`."""
    names = [one.name for one in fields(constants) if one.name.startswith(prefix)]
    return replace(constants, **{name: getattr(constants, name) * ratio for name in names})


def own_workload(found: CrawlFigures, files: FileFigures | None, delay_s: float) -> Workload:
    """Return the workload of the crawl itself, with the same assumptions as in a plan about what cannot be read."""
    work = Workload(
        pages=found.pages,
        days=max(1.0, found.crawled_s) / 86_400,
        domains=max(1.0, found.domains),
        urls=found.urls,
        queued=found.queued,
        delay_s=delay_s,
        shards=found.shards,
    )
    return replace(work, **files.workload) if files else work


def _groups(
    found: CrawlFigures, files: FileFigures | None, expected: Usage, work: Workload, constants: Constants
) -> Iterator[tuple[str, str, float, float, str]]:
    """Yield for each group of constants their prefix and name, what was used, what would be, and why it is unknown."""
    share = found.replica_pages / found.pages
    missing = "" if found.replica_cpu_s >= LEAST_CPU_S and share else "no replica runs, or only since a moment ago"
    yield "cpu_", "CPU of replicas", found.replica_cpu_s, expected.cpu_s * share, missing
    missing = "" if found.redis_cpu_s >= LEAST_CPU_S / 10 else "too little to measure"
    yield "redis_us_", "CPU of Redis", found.redis_cpu_s, expected.redis_cpu_s, missing
    # The URLs themselves, which no constant is for, unless they are packed.
    text = 0.0 if are_packed(work, constants) else found.queued * work.url_bytes
    missing = "" if found.redis_bytes - text >= LEAST_BYTES else "too little to measure"
    yield "memory_", "memory of Redis", found.redis_bytes - text, expected.redis_bytes - text, missing
    if files is not None:
        would_use = expected.disk_bytes * files.pages / work.pages
        yield "disk_", "output files", files.disk_bytes, would_use, "" if files.disk_bytes else "none found"
