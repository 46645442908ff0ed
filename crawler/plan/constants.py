"""What a crawl costs per page, URL, link, connection and domain: the constants of the plan, each with its source.

CPU is that of one virtual core of the EPYC in docs/explanation/speed.md, at full speed; the Xeon there takes 1.7 times as
long. `bench.plan_constants` measures it, with crawls that have much of one thing each: medians of two to four runs,
which differ by up to a fifth. None of the constants was chosen by what the crawls of `bench.plan` use.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

SPEED = "docs/explanation/speed.md"
MEASURED = "bench.plan_constants"
LOADED = "measured once, on a busy machine"


def _constant(value: float, unit: str, meaning: str, source: str) -> Any:
    return field(default=value, metadata={"unit": unit, "meaning": meaning, "source": source})


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants. Most names begin with "cpu_" for a replica's CPU, with "redis_us_" for that of Redis, with "memory_"
    for its memory, and with "disk_" for files."""

    cpu_page: float = _constant(220, "us", "CPU per page, whatever its size", MEASURED)
    cpu_kilobyte: float = _constant(4.1, "us", "CPU per kB of page: receive, decode, find tags", MEASURED)
    cpu_link: float = _constant(2.3, "us", "CPU per link: resolve, filter, list", MEASURED)
    cpu_new_url: float = _constant(10, "us", "CPU per new URL: pack and push", MEASURED)
    cpu_archive_page: float = _constant(73, "us", "CPU per page for records, index and line", MEASURED)
    cpu_archive_kilobyte: float = _constant(3.2, "us", "CPU per kB of page for gzip and digest", MEASURED)
    cpu_connection: float = _constant(224, "us", "CPU per new connection", MEASURED)
    cpu_tls: float = _constant(1_300, "us", "CPU per TLS handshake, on top: two certificates to verify", LOADED)
    cpu_tls_kilobyte: float = _constant(3.2, "us", "CPU per kB received over TLS, on top", SPEED)
    cpu_domain: float = _constant(497, "us", "CPU per fetched domain: leases and robots.txt", MEASURED)

    redis_us_page: float = _constant(20.4, "us", "Redis CPU per page that is settled alone, as with a delay", MEASURED)
    redis_us_url: float = _constant(7.4, "us", "Redis CPU per new URL", MEASURED)
    redis_us_page_grouped: float = _constant(13.9, "us", "Redis CPU per page that is settled in a group", MEASURED)
    redis_us_domain: float = _constant(143, "us", "Redis CPU per fetched domain: leases and robots.txt", MEASURED)
    redis_us_push: float = _constant(6.5, "us", "Redis CPU per domain to which new URLs are pushed", MEASURED)

    memory_seen: float = _constant(8.8, "B", "Redis memory per URL ever accepted", "bench.frontier")
    memory_queued: float = _constant(77, "B", "Redis memory per queued URL, besides its part after the host", MEASURED)
    memory_queued_compact: float = _constant(10, "B", "the same, in queues of up to 128 URLs", MEASURED)
    memory_queued_packed: float = _constant(
        0.287,
        "B",
        "Redis memory of a queued URL in queues of more than 1,000, per byte after the host, all included",
        "bench.long_queue",
    )
    memory_domain: float = _constant(336, "B", "Redis memory per domain", MEASURED)
    memory_robots: float = _constant(700, "B", "Redis memory per fetched domain, for its robots.txt", "assumed")
    memory_shard: float = _constant(3_000, "B", "Redis memory per shard", "assumed")
    memory_server: float = _constant(865e3, "B", "Redis memory for scripts and connections", MEASURED)

    disk_page: float = _constant(2_470, "B", "output per page: headers, records, index and line", MEASURED)
    disk_link: float = _constant(40, "B", "output per link: line and metadata record", MEASURED)
    disk_domain: float = _constant(1_380, "B", "output per domain: records of its robots.txt", MEASURED)

    used_share: float = _constant(0.7, "", "share of a core that is planned to be busy", "a choice")
    headroom: float = _constant(1.3, "", "memory to have per byte used: fragments, buffers, forks", "a choice")
    replica_bytes: float = _constant(250e6, "B", "memory of a replica", "bench.memory")
    new_link_share: float = _constant(0.1, "", "share of links that are new URLs", "assumed")
    header_bytes: float = _constant(600, "B", "bytes received per page besides its body", "assumed")


FACTS: dict[str, dict[str, str]] = {one.name: dict(one.metadata) for one in fields(Constants)}
"""Constant -> its unit, meaning and source."""
