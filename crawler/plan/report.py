"""The lines of a plan: each figure with the formula that it comes from, and the factor that limits the crawl."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from crawler.plan.arithmetic import (
    LEAST_SHARDS,
    PACKED_LENGTH,
    SHARDS_PER_REPLICA,
    Constants,
    Estimate,
    Workload,
    quantity,
    shards_for,
    short,
    short_above,
)
from crawler.wording import count_of
from frontier.keys import MOST_SHARDS

LONG = 0.5
"""Share of the planned time from which on politeness limits a plan: no number of machines could save more than half."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The machines to use: `cores` and `memory_bytes` of each, and its `price` per hour, 0 if it is unknown.
    `replicas_per_core`: how many replicas share a core. `redis_bytes`: the most memory that one Redis process should have.
    """

    cores: float = 16
    memory_bytes: float = 128e9
    price: float = 0
    replicas_per_core: float = 1
    redis_bytes: float = 64e9

    def replicas(self, busy_cores: float) -> int:
        return max(1, math.ceil(busy_cores * self.replicas_per_core))


@dataclass(frozen=True, slots=True)
class Line:
    """A figure of the plan. `formula`: where it comes from, with the numbers in place."""

    name: str
    value: float
    unit: str
    formula: str

    @property
    def text(self) -> str:
        return quantity(self.value, self.unit)


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan. `limit`: the limiting factor; `is_possible`: whether politeness allows the pages in the time."""

    lines: tuple[Line, ...]
    limit: str
    is_possible: bool


def make_plan(work: Workload, constants: Constants, machines: Machines, largest: float = 0) -> Plan:
    """Return the plan for `work`. `largest`: pages of the largest domain, 0 if they are unknown."""
    replicas = machines.replicas(Estimate(work, constants).cores)
    estimate = Estimate(replace(work, shards=work.shards or shards_for(replicas)), constants)
    lines = [*_totals(estimate), *_replicas(estimate, machines), *_redis(estimate, machines)]
    lines += [*_traffic(estimate), *_politeness(estimate, largest)]
    value = {line.name: line.value for line in lines}
    for_cpu = (value["cores"] + value["Redis cores"]) / machines.cores
    for_memory = (value["Redis memory"] + value["memory of replicas"]) / machines.memory_bytes
    count = math.ceil(max(for_cpu, for_memory))
    larger = f"the larger of CPU ({short_above(for_cpu)}) and memory ({short_above(for_memory)}), rounded up"
    lines.append(Line("machines", count, "", larger))
    if machines.price:
        hours = work.days * 24
        rent = f"{count_of(count, 'machine')} x {short(hours)} h x {machines.price:g} per hour"
        lines.append(Line("price", count * hours * machines.price, "", f"{rent}, without disk and traffic"))
    return Plan(tuple(lines), *_limit(work, value, for_cpu, for_memory))


def _totals(estimate: Estimate) -> list[Line]:
    work = estimate.work
    links = f"{short(work.pages)} pages x {short(work.links_per_page)} links"
    derived = f"{links} x {estimate.constants.new_link_share:g} new, at least 1"
    known = "as given, at least the pages" if work.urls is not None else derived
    rest = "seen URLs - pages" if work.queued is None else "as many per page as in the crawl"
    packed = "most are" if estimate.are_packed else f"not above {PACKED_LENGTH:,}, so not"
    length = f"{short(estimate.queued_urls / work.domains)} per domain, {packed} packed"
    return [
        Line("pages", work.pages_per_s, "pages/s", f"{short(work.pages)} pages / ({short(work.days)} d x 86,400 s)"),
        Line("seen URLs", estimate.seen_urls, "URLs", known),
        Line("queued URLs", estimate.queued_urls, "URLs", f"{rest}, at the end: {length}"),
    ]


def _replicas(estimate: Estimate, machines: Machines) -> list[Line]:
    work, constants, page_us = estimate.work, estimate.constants, estimate.cpu_page_us
    replicas, each = machines.replicas(estimate.cores), constants.replica_bytes
    busy = f"{short(work.pages_per_s)} pages/s x {short(page_us)} us / {constants.used_share:g} busy"
    is_too_many = replicas * SHARDS_PER_REPLICA > MOST_SHARDS
    most = f", at most {MOST_SHARDS:,}: too few for so many replicas" if is_too_many else ""
    return [
        Line("CPU per page", page_us, "us", _page_formula(estimate)),
        Line("cores", estimate.cores, "", busy),
        Line("replicas", replicas, "", f"cores x {machines.replicas_per_core:g} per core, rounded up"),
        Line("memory of replicas", replicas * each, "B", f"replicas x {quantity(each, 'B')}"),
        Line("shards", work.shards, "", f"{SHARDS_PER_REPLICA} per replica, at least {LEAST_SHARDS:,}{most}"),
    ]


def _page_formula(estimate: Estimate) -> str:
    work, constants = estimate.work, estimate.constants
    kilobytes = short(work.page_bytes / 1e3)
    parts = [
        f"{short(constants.cpu_page)} + {short(constants.cpu_kilobyte)} x {kilobytes} kB",
        f"{short(constants.cpu_link)} x {short(work.links_per_page)} links",
        f"{short(constants.cpu_new_url)} x {short(estimate.seen_urls / work.pages)} new",
    ]
    if work.tls:
        received = short(work.transfer * work.page_bytes / 1e3 * work.tls)
        parts.append(f"{short(constants.cpu_tls_kilobyte)} x {received} kB of TLS")
    if work.archive:
        archived = f"{short(constants.cpu_archive_kilobyte)} x {kilobytes} kB to archive"
        parts.append(f"{short(constants.cpu_archive_page)} + {archived}")
    parts.append(f"{short(estimate.connection_us)} x {_counted(estimate.connections_per_page, 'connection')}")
    parts.append(f"{short(constants.cpu_domain)} x {short(estimate.fetched_domains / work.pages)} fetched")
    return " + ".join(parts)


def _redis(estimate: Estimate, machines: Machines) -> list[Line]:
    work, constants, used = estimate.work, estimate.constants, estimate.usage
    cores = used.redis_cpu_s / work.seconds / constants.used_share
    memory = used.redis_bytes * constants.headroom
    for_memory = memory / machines.redis_bytes
    urls, fetched = f"{short(estimate.seen_urls)} URLs", f"{short(estimate.fetched_domains)} fetched"
    pushed = _counted(estimate.pushed_domains, "pushed domain")
    cpu = (
        f"({short(work.pages)} pages x"
        f" ({short(estimate.redis_page_us)} us + {pushed} x {short(constants.redis_us_push)} us)"
        f" + {urls} x {short(constants.redis_us_url)} us + {fetched} x {short(constants.redis_us_domain)} us)"
        f" / {short(work.seconds)} s / {constants.used_share:g} busy"
    )
    stored = (
        f"({urls} x {short(constants.memory_seen)} B"
        f" + {short(estimate.queued_urls)} queued x {short(estimate.queued_bytes)} B"
        f" + {_counted(work.domains, 'domain')} x {short(constants.memory_domain)} B"
        f" + {fetched} x {short(constants.memory_robots)} B"
        f" + {short(work.shards)} shards x {short(constants.memory_shard)} B"
        f" + {quantity(constants.memory_server, 'B')}) x {constants.headroom:g}"
    )
    larger = (
        f"the larger of CPU ({short_above(cores)}, a core each) and memory ({short_above(for_memory)}, "
        f"{quantity(machines.redis_bytes, 'B')} each), rounded up"
    )
    return [
        Line("Redis cores", cores, "", cpu),
        Line("Redis memory", memory, "B", stored),
        Line("Redis nodes", max(1, math.ceil(max(cores, for_memory))), "", larger),
    ]


def _traffic(estimate: Estimate) -> list[Line]:
    work, constants, used = estimate.work, estimate.constants, estimate.usage
    size = quantity(work.page_bytes, "B")
    sent = f"{size} x {work.transfer:.2g} as sent + {short(constants.header_bytes)} B"
    written = f"{size} x {work.compression:.2g} + {short(constants.disk_page)} B"
    links = f"{short(work.links_per_page)} links x {short(constants.disk_link)} B"
    domains = f"{short(estimate.fetched_domains)} fetched x {short(constants.disk_domain)} B"
    files = f"{short(work.pages)} pages x ({written} + {links}) + {domains}" if work.archive else "no archive"
    received = f"{short(work.pages_per_s)} pages/s x ({sent}) x 8"
    return [
        Line("bandwidth", used.received_bytes * 8 / work.seconds, "bit/s", received),
        Line("disk", used.disk_bytes, "B", files),
    ]


def _politeness(estimate: Estimate, largest: float) -> list[Line]:
    work, rate, bound = estimate.work, estimate.domain_pages_per_s, estimate.polite_pages_per_s
    at_once = work.parallel if not work.delay_s and work.parallel > 1 else 1
    turn = f"({short(work.delay_s)} s delay + {short(work.response_s)} s response)"
    domains, time = _counted(work.domains, "domain"), f"{short(work.days)} d"
    lines = [
        Line("politeness bound", bound, "pages/s", f"{domains} x {at_once:g} / {turn}"),
        Line("shortest time", work.pages / bound / 86_400, "d", "pages / politeness bound, with domains of equal size"),
        Line("largest domain possible", work.seconds * rate, "pages", f"{time} x {at_once:g} / {turn}"),
    ]
    if largest:
        formula = f"{short(largest)} pages x {turn} / " + (f"{at_once:g} / " if at_once > 1 else "") + "86,400"
        lines.append(Line("time of the largest domain", largest / rate / 86_400, "d", formula))
    return lines


def _counted(number: float, noun: str) -> str:
    return f"{short(number)} {noun}{'' if short(number) == '1' else 's'}"


def _limit(work: Workload, value: dict[str, float], for_cpu: float, for_memory: float) -> tuple[str, bool]:
    """Return the limiting factor, and whether politeness allows the plan."""
    shortest, largest, days = (
        value["shortest time"],
        value.get("time of the largest domain", 0),
        quantity(work.days, "d"),
    )
    if shortest > work.days:
        return f"politeness: not possible in {days}, these domains take {quantity(shortest, 'd')} at least", False
    if largest > work.days:
        return f"politeness: not possible in {days}, the largest domain takes {quantity(largest, 'd')}", False
    needed = max(shortest, largest)
    if needed / work.days > LONG:
        return f"politeness: these domains take {quantity(needed, 'd')} of {days}", True
    if for_memory > for_cpu:
        owner = "Redis" if value["Redis memory"] > value["memory of replicas"] else "the replicas"
        effect = "it takes more machines than the CPU does" if for_memory > 1 else "one machine has enough of it"
        return f"memory of {owner}: {effect}", True
    return "CPU of the replicas" if value["cores"] >= value["Redis cores"] else "CPU of Redis", True
