"""The arithmetic of a plan: from a workload and the constants to what it needs. Pure functions.

The constants say what a crawl costs per page, URL, link, connection and domain. CPU is that of one virtual core of the EPYC
in docs/explanation/speed.md, at full speed; the Xeon there takes 1.7 times as long. `bench.plan_constants` measures it,
with crawls that have much of one thing each: medians of two to four runs, which differ by up to a fifth. None of the
constants was chosen by what the crawls of `bench.plan` use.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from crawler.errors import UserError
from frontier.keys import MOST_SHARDS

# numbers as people write them: 1e9, 5M, 10k and 1,000,000

_FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_WRITTEN = re.compile(r"(-?)(\d+(?:[,_]\d{3})+|\d+)?(\.\d+)?(e[+-]?\d{1,3})?([kmgt]?)", re.IGNORECASE)

STEPS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))

LEAST, MOST = 1e-6, 1e18
"""The least of numbers that something is divided by, and the most of all."""

PLAIN = 99_950
"""Below this, numbers are written without a prefix."""


def number(option: str, text: str, least: float = 0.0, most: float = MOST) -> float:
    """Return the number that `text` says. Raises UserError, which names `option`, if it is none or not in the range."""
    written = _WRITTEN.fullmatch(text.strip())
    if not written or not (written[2] or written[3]):
        raise UserError(f"{option}: {text!r} is not a number; write it like 1000000, 1e6, 1M or 10k")
    digits = re.sub("[,_]", "", written[2] or "0")
    value = float(f"{written[1]}{digits}{written[3] or ''}{written[4] or ''}") * _FACTORS[written[5].lower()]
    if not least <= value <= most:
        raise UserError(f"{option}: {text!r} must be {_range(least, most)}")
    return value


def _range(least: float, most: float) -> str:
    if most < MOST:
        return f"from {least:g} to {most:g}"
    return "more than 0, such as 1" if 0 < least <= LEAST else f"at least {least:g}, and at most {most:g}"


def short(value: float) -> str:
    """Return `value` with three significant digits, an integer with all, and from 100,000 on with a prefix: 5M, 0.0048."""
    return _with_prefix(value, "") if abs(value) >= PLAIN else _digits(value)


def short_above(value: float) -> str:
    """Return `value` like `short`, but 24.02 as 24.1: what is rounded up later does not look like the number below."""
    whole = math.floor(value)
    if whole < value < 100 and short(value) == short(whole):
        return short(whole + 0.1)
    return short(value)


def quantity(value: float, unit: str) -> str:
    """Return `value` with its `unit`: 11.6 kB, 117 Mbit/s, 1,160 pages/s, 3."""
    return _with_prefix(value, " ") + unit if unit in ("B", "bit/s") else f"{short(value)} {unit}".rstrip()


def _with_prefix(value: float, space: str) -> str:
    for factor, prefix in STEPS:
        if abs(value) >= factor * 0.9995:
            return f"{_digits(value / factor)}{space}{prefix}"
    return f"{_digits(value)}{space}"


def _digits(value: float) -> str:
    if value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 99.95:
        return f"{value:.3g}"
    rounded = round(value, 2 - math.floor(math.log10(abs(value))))
    return f"{rounded:,.0f}"


# constants


@dataclass(frozen=True, slots=True)
class Constants:
    """What a crawl costs: CPU in microseconds, memory and output in bytes. Measured by `bench.plan_constants` unless a
    comment says otherwise."""

    cpu_page: float = 220  # whatever its size
    cpu_kilobyte: float = 4.1  # of page: receive, decode, find tags
    cpu_link: float = 2.3  # resolve, filter, list
    cpu_new_url: float = 10  # pack and push
    cpu_archive_page: float = 73  # records, index and line
    cpu_archive_kilobyte: float = 3.2  # of page: gzip and digest
    cpu_connection: float = 224  # a new one
    cpu_tls: float = 1_300  # for its handshake, on top: two certificates to verify; measured once, on a busy machine
    cpu_tls_kilobyte: float = 3.2  # received over TLS, on top (docs/explanation/speed.md)
    cpu_domain: float = 497  # that is fetched: leases and robots.txt

    redis_us_page: float = 20.4  # CPU of Redis for a page that is settled alone, as with a delay
    redis_us_url: float = 7.4  # a new one
    redis_us_page_grouped: float = 13.9  # a page that is settled in a group
    redis_us_domain: float = 143  # that is fetched: leases and robots.txt
    redis_us_push: float = 6.5  # per domain to which new URLs are pushed

    memory_seen: float = 8.8  # of Redis for a URL ever accepted (bench.frontier)
    memory_queued: float = 77  # a queued URL, besides its part after the host
    memory_queued_compact: float = 10  # the same, in queues of up to 128 URLs
    memory_queued_packed: float = 0.287  # per byte after the host, in queues of more than 1,000 URLs (bench.long_queue)
    memory_domain: float = 336
    memory_robots: float = 700  # of a fetched domain; assumed
    memory_shard: float = 3_000  # assumed
    memory_server: float = 865e3  # scripts and connections

    disk_page: float = 2_470  # headers, records, index and line
    disk_link: float = 40  # line and metadata record
    disk_domain: float = 1_380  # records of its robots.txt

    used_share: float = 0.7  # of a core that is planned to be busy; a choice
    headroom: float = 1.3  # memory to have per byte used: fragments, buffers, forks; a choice
    replica_bytes: float = 250e6  # memory (bench.memory)
    new_link_share: float = 0.1  # of links that are new URLs; assumed
    header_bytes: float = 600  # received per page besides its body; assumed


# the workload and what it uses

DAY_S = 86_400
LEAST_SHARDS, SHARDS_PER_REPLICA = 1_024, 32

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

    `page_bytes`: mean size of a page after content decoding; `transfer` and `compression`: bytes received and bytes of
    the archive per such byte. `urls`: known at the end, None to derive them from the links; `queued`: those of them
    that are not fetched, None for all but the pages; `url_bytes`: mean length of a URL after its host.
    `linked_domains`: that a page links to. `fetched`: domains with a page, None to estimate them. `delay_s`: from the
    end of a response to the domain's next request; `parallel`: requests in flight to a domain without a delay.
    `connections`: new ones per page, None for one per page with a delay and one per domain without; `tls`: share of
    them with TLS. `archive`: with WARC, index and lines. `shards`: 0 for as many as the replicas need.
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


@dataclass(frozen=True, slots=True)
class Usage:
    """What a crawl uses in total: seconds of the CPU of replicas and of Redis, and bytes. `redis_bytes`: at its end."""

    cpu_s: float
    redis_cpu_s: float
    redis_bytes: float
    received_bytes: float
    disk_bytes: float


@dataclass(frozen=True, slots=True)
class Estimate:
    work: Workload
    constants: Constants

    @property
    def seen_urls(self) -> float:
        work = self.work
        if work.urls is not None:
            return max(work.urls, work.pages)
        return work.pages * max(1.0, work.links_per_page * self.constants.new_link_share)

    @property
    def queued_urls(self) -> float:
        """URLs that are known at the end, and not fetched."""
        return self.seen_urls - self.work.pages if self.work.queued is None else self.work.queued

    @property
    def fetched_domains(self) -> float:
        """Domains with a page. A crawl may know more. The estimate is as if each page were of any of the domains."""
        work = self.work
        if work.fetched is not None:
            return min(work.fetched, work.domains, work.pages)
        return min(work.pages, -work.domains * math.expm1(-work.pages / work.domains))

    @property
    def connections_per_page(self) -> float:
        work = self.work
        wanted = work.connections if work.connections is not None else float(bool(work.delay_s))
        return max(self.fetched_domains / work.pages, wanted)

    @property
    def connection_us(self) -> float:
        return self.constants.cpu_connection + self.work.tls * self.constants.cpu_tls

    @property
    def cpu_page_us(self) -> float:
        """CPU per page in microseconds, with its part of the connections and of the domains."""
        work, constants = self.work, self.constants
        kilobytes = work.page_bytes / 1_000
        return (
            constants.cpu_page
            + constants.cpu_kilobyte * kilobytes
            + constants.cpu_link * work.links_per_page
            + constants.cpu_new_url * self.seen_urls / work.pages
            + work.tls * constants.cpu_tls_kilobyte * kilobytes * work.transfer
            + work.archive * (constants.cpu_archive_page + constants.cpu_archive_kilobyte * kilobytes)
            + self.connection_us * self.connections_per_page
            + constants.cpu_domain * self.fetched_domains / work.pages
        )

    @property
    def cores(self) -> float:
        """Cores of replicas, busy for the planned share of the time."""
        return self.work.pages_per_s * self.cpu_page_us / 1e6 / self.constants.used_share

    @property
    def shards(self) -> float:
        """The shards that the crawl has, or should have."""
        return self.work.shards or shards_for(math.ceil(self.cores))

    @property
    def pushed_domains(self) -> float:
        """To how many domains new URLs are pushed per page. Pages that are pushed together may link to the same domains."""
        work = self.work
        return min(work.linked_domains, self.seen_urls / work.pages, work.domains / PUSHED_TOGETHER)

    @property
    def redis_page_us(self) -> float:
        """Redis CPU of a page in microseconds."""
        return self.constants.redis_us_page if self.work.delay_s else self.constants.redis_us_page_grouped

    @property
    def are_packed(self) -> bool:
        """Whether the queues are so long, on average, that most of their URLs are packed."""
        return self.queued_urls > self.work.domains * PACKED_LENGTH

    @property
    def queued_bytes(self) -> float:
        """The Redis memory of a queued URL. Queues count as compact if their mean length is half of what they may be."""
        work, constants = self.work, self.constants
        if self.are_packed:
            return work.url_bytes * constants.memory_queued_packed
        is_compact = self.queued_urls <= work.domains * COMPACT_LENGTH / 2
        return work.url_bytes + (constants.memory_queued_compact if is_compact else constants.memory_queued)

    @property
    def usage(self) -> Usage:
        work, constants, pages = self.work, self.constants, self.work.pages
        redis = pages * (self.redis_page_us + self.pushed_domains * constants.redis_us_push)
        redis += self.seen_urls * constants.redis_us_url + self.fetched_domains * constants.redis_us_domain
        memory = (
            self.seen_urls * constants.memory_seen
            + self.queued_urls * self.queued_bytes
            + work.domains * constants.memory_domain
            + self.fetched_domains * constants.memory_robots
            + self.shards * constants.memory_shard
            + constants.memory_server
        )
        received = pages * (work.transfer * work.page_bytes + constants.header_bytes)
        page = work.compression * work.page_bytes + constants.disk_page + constants.disk_link * work.links_per_page
        disk = work.archive * (pages * page + self.fetched_domains * constants.disk_domain)
        return Usage(pages * self.cpu_page_us / 1e6, redis / 1e6, memory, received, disk)

    @property
    def domain_pages_per_s(self) -> float:
        """Pages per second of one domain. Requests are only parallel without a delay."""
        turn_s = self.work.delay_s + self.work.response_s
        return (self.work.parallel if not self.work.delay_s else 1) / turn_s if turn_s else math.inf

    @property
    def polite_pages_per_s(self) -> float:
        """Pages per second that no crawler of these domains may exceed, if all have pages until the end."""
        return self.work.domains * self.domain_pages_per_s


def shards_for(replicas: int) -> int:
    """The shards that so many replicas need, as far as a crawl may have them."""
    return min(MOST_SHARDS, max(LEAST_SHARDS, SHARDS_PER_REPLICA * replicas))
