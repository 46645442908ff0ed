"""The arithmetic of a plan: from a workload and the constants to what it needs. Pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crawler.plan.constants import Constants

DAY_S = 86_400
LEAST_SHARDS, SHARDS_PER_REPLICA = 1_024, 32

MOST_SHARDS = 65_536
"""The most that a crawl may have (`frontier.keys`)."""

COMPACT_LENGTH = 128
"""URLs in a queue that Redis stores compactly, with `zset-max-listpack-value 512`."""

PUSHED_TOGETHER = 200
"""Pages whose new URLs a busy replica pushes together, as measured by `bench.plan_constants`, before groups became
larger (`crawler.worker.commit`)."""

MOST_PARALLEL = 64
"""The most requests in flight to a domain (`politeness.parallel`)."""

PACKED_LENGTH = 1_000
"""Above so many URLs, a queue is packed (the default of `frontier.pack_above`)."""


@dataclass(frozen=True, slots=True)
class Workload:
    """What is to be crawled, in how many `days`.

    `page_bytes`: mean size of a page after content decoding; `transfer`: bytes received per such byte; `compression`: bytes
    of the archive per such byte. `urls`: URLs known at the end, None to derive them from the links; `queued`: those of them
    that are not fetched, None for all but the pages; `url_bytes`: mean length of a URL after its host. `linked_domains`:
    domains that a page links to. `fetched`: domains with a page, None to estimate them. `delay_s`: from the end of a
    response to the domain's next request; `response_s`: duration of a request; `parallel`: requests in flight to a domain,
    if there is no delay. `connections`: new connections per page, None for one per page with a delay and one per domain
    without; `tls`: share of them with TLS. `archive`: with WARC, index and lines. `shards`: 0 for as many as the replicas
    need.
    """

    pages: float
    days: float
    domains: float
    page_bytes: float = 40_000
    links_per_page: float = 50
    linked_domains: float = 5
    urls: float | None = None
    queued: float | None = None
    url_bytes: float = 45
    fetched: float | None = None
    delay_s: float = 1.0
    response_s: float = 0.2
    parallel: float = 1
    connections: float | None = None
    tls: float = 1.0
    transfer: float = 0.3
    compression: float = 0.22
    archive: bool = True
    shards: float = 0

    @property
    def seconds(self) -> float:
        return self.days * DAY_S

    @property
    def pages_per_s(self) -> float:
        return self.pages / self.seconds

    def seen_urls(self, constants: Constants) -> float:
        """URLs known at the end."""
        if self.urls is not None:
            return max(self.urls, self.pages)
        return self.pages * max(1.0, self.links_per_page * constants.new_link_share)

    @property
    def new_connections(self) -> float:
        """Connections that are opened during the crawl."""
        if self.connections is not None:
            return max(fetched_domains(self), self.pages * self.connections)
        return max(fetched_domains(self), self.pages if self.delay_s else 0)


@dataclass(frozen=True, slots=True)
class Usage:
    """What a crawl uses in total: seconds of the CPU of replicas and of Redis, and bytes. `redis_bytes`: at its end."""

    cpu_s: float
    redis_cpu_s: float
    redis_bytes: float
    received_bytes: float
    disk_bytes: float


def queued_urls(work: Workload, constants: Constants) -> float:
    """URLs that are known at the end, and not fetched."""
    return work.seen_urls(constants) - work.pages if work.queued is None else work.queued


def cpu_page_us(work: Workload, constants: Constants) -> float:
    """CPU per page in microseconds, with its part of the connections and of the domains."""
    kilobytes, one = work.page_bytes / 1_000, constants
    return (
        one.cpu_page
        + one.cpu_kilobyte * kilobytes
        + one.cpu_link * work.links_per_page
        + one.cpu_new_url * work.seen_urls(constants) / work.pages
        + work.tls * one.cpu_tls_kilobyte * kilobytes * work.transfer
        + work.archive * (one.cpu_archive_page + one.cpu_archive_kilobyte * kilobytes)
        + connection_us(work, one) * work.new_connections / work.pages
        + one.cpu_domain * fetched_domains(work) / work.pages
    )


def pushed_domains(work: Workload, constants: Constants) -> float:
    """To how many domains new URLs are pushed per page. Pages that are pushed together may link to the same domains."""
    return min(work.linked_domains, work.seen_urls(constants) / work.pages, work.domains / PUSHED_TOGETHER)


def fetched_domains(work: Workload) -> float:
    """Domains with a page. A crawl may know more. The estimate is as if each page were of any of the domains."""
    if work.fetched is not None:
        return min(work.fetched, work.domains, work.pages)
    return min(work.pages, -work.domains * math.expm1(-work.pages / work.domains))


def connection_us(work: Workload, constants: Constants) -> float:
    """CPU of a new connection in microseconds."""
    return constants.cpu_connection + work.tls * constants.cpu_tls


def redis_page_us(work: Workload, constants: Constants) -> float:
    """Return the microseconds of Redis CPU of a page."""
    return constants.redis_us_page if work.delay_s else constants.redis_us_page_grouped


def are_packed(work: Workload, constants: Constants) -> bool:
    """Whether the queues are so long, on average, that most of their URLs are packed."""
    return queued_urls(work, constants) > work.domains * PACKED_LENGTH


def queued_bytes(work: Workload, constants: Constants) -> float:
    """Return the Redis memory of a queued URL. Queues are taken to be compact if their mean length is half of what they may
    be, because some domains have more URLs than others."""
    if are_packed(work, constants):
        return work.url_bytes * constants.memory_queued_packed
    is_compact = queued_urls(work, constants) <= work.domains * COMPACT_LENGTH / 2
    return work.url_bytes + (constants.memory_queued_compact if is_compact else constants.memory_queued)


def disk_page_bytes(work: Workload, constants: Constants) -> float:
    """Bytes of a page in the output files."""
    if not work.archive:
        return 0.0
    return work.compression * work.page_bytes + constants.disk_page + constants.disk_link * work.links_per_page


def usage_of(work: Workload, constants: Constants) -> Usage:
    """Return what the crawl uses in total."""
    one, urls = constants, work.seen_urls(constants)
    cpu_us = work.pages * cpu_page_us(work, one)
    redis = work.pages * (redis_page_us(work, one) + pushed_domains(work, one) * one.redis_us_push)
    redis += urls * one.redis_us_url + fetched_domains(work) * one.redis_us_domain
    memory = (
        urls * one.memory_seen
        + queued_urls(work, one) * queued_bytes(work, one)
        + work.domains * one.memory_domain
        + fetched_domains(work) * one.memory_robots
        + shards(work, one) * one.memory_shard
        + one.memory_server
    )
    received = work.pages * (work.transfer * work.page_bytes + one.header_bytes)
    disk = work.pages * disk_page_bytes(work, one) + work.archive * fetched_domains(work) * one.disk_domain
    return Usage(cpu_us / 1e6, redis / 1e6, memory, received, disk)


def cores(work: Workload, constants: Constants) -> float:
    """Cores of replicas, busy for the planned share of the time."""
    return work.pages_per_s * cpu_page_us(work, constants) / 1e6 / constants.used_share


def shards(work: Workload, constants: Constants) -> float:
    """The shards that the crawl has, or should have."""
    return work.shards or shards_for(math.ceil(cores(work, constants)))


def shards_for(replicas: int) -> int:
    """The shards that so many replicas need, as far as a crawl may have them."""
    return min(MOST_SHARDS, max(LEAST_SHARDS, SHARDS_PER_REPLICA * replicas))


def polite_pages_per_s(work: Workload) -> float:
    """Pages per second that no crawler of these domains may exceed, if all have pages until the end."""
    return work.domains * domain_pages_per_s(work)


def domain_pages_per_s(work: Workload) -> float:
    """Pages per second of one domain. Requests are only parallel without a delay."""
    turn_s = work.delay_s + work.response_s
    return (work.parallel if not work.delay_s else 1) / turn_s if turn_s else math.inf
