"""The lines of a plan: each figure with the formula that it comes from, and the factor that limits the crawl."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from crawler.plan import arithmetic
from crawler.plan.arithmetic import Constants, Workload, quantity, short, short_above
from crawler.wording import count_of

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


def make_plan(work: Workload, one: Constants, machines: Machines, largest: float = 0) -> Plan:
    """Return the plan for `work`. `largest`: pages of the largest domain, 0 if they are unknown."""
    work = replace(work, shards=_shards(work, one, machines))
    lines = [*_totals(work, one), *_replicas(work, one, machines), *_redis(work, one, machines)]
    lines += [*_traffic(work, one), *_politeness(work, largest)]
    value = {line.name: line.value for line in lines}
    for_cpu = (value["cores"] + value["Redis cores"]) / machines.cores
    for_memory = (value["Redis memory"] + value["memory of replicas"]) / machines.memory_bytes
    count = math.ceil(max(for_cpu, for_memory))
    lines.append(
        Line(
            "machines",
            count,
            "",
            f"the larger of CPU ({short_above(for_cpu)}) and memory ({short_above(for_memory)}), rounded up",
        )
    )
    if machines.price:
        hours = work.days * 24
        formula = (
            f"{count_of(count, 'machine')} x {short(hours)} h x {machines.price:g} per hour, without disk and traffic"
        )
        lines.append(Line("price", count * hours * machines.price, "", formula))
    return Plan(tuple(lines), *_limit(work, value, for_cpu, for_memory))


def _totals(work: Workload, one: Constants) -> list[Line]:
    urls = work.seen_urls(one)
    if work.urls is None:
        derived = (
            f"{short(work.pages)} pages x {short(work.links_per_page)} links x {one.new_link_share:g} new, at least 1"
        )
    else:
        derived = "as given or measured, at least the pages"
    queued = arithmetic.queued_urls(work, one)
    of = "seen URLs - pages" if work.queued is None else "as many per page as in the crawl"
    are = "most are" if arithmetic.are_packed(work, one) else f"not above {arithmetic.PACKED_LENGTH:,}, so not"
    return [
        Line("pages", work.pages_per_s, "pages/s", f"{short(work.pages)} pages / ({short(work.days)} d x 86,400 s)"),
        Line("seen URLs", urls, "URLs", derived),
        Line(
            "queued URLs", queued, "URLs", f"{of}, at the end: {short(queued / work.domains)} per domain, {are} packed"
        ),
    ]


def _replicas(work: Workload, one: Constants, machines: Machines) -> list[Line]:
    per_page = arithmetic.cpu_page_us(work, one)
    cores = arithmetic.cores(work, one)
    replicas, each, least = _count_of_replicas(cores, machines), arithmetic.SHARDS_PER_REPLICA, arithmetic.LEAST_SHARDS
    is_too_many = replicas * each > arithmetic.MOST_SHARDS
    most = f", at most {arithmetic.MOST_SHARDS:,}: too few for so many replicas" if is_too_many else ""
    return [
        Line("CPU per page", per_page, "us", _page_formula(work, one)),
        Line("cores", cores, "", f"{short(work.pages_per_s)} pages/s x {short(per_page)} us / {one.used_share:g} busy"),
        Line("replicas", replicas, "", f"cores x {machines.replicas_per_core:g} per core, rounded up"),
        Line("memory of replicas", replicas * one.replica_bytes, "B", f"replicas x {quantity(one.replica_bytes, 'B')}"),
        Line("shards", work.shards, "", f"{each} per replica, at least {least:,}{most}"),
    ]


def _count_of_replicas(cores: float, machines: Machines) -> int:
    return max(1, math.ceil(cores * machines.replicas_per_core))


def _shards(work: Workload, one: Constants, machines: Machines) -> float:
    """Return the shards that the crawl has, or should have with so many replicas per core."""
    replicas = _count_of_replicas(arithmetic.cores(work, one), machines)
    return work.shards or arithmetic.shards_for(replicas)


def _page_formula(work: Workload, one: Constants) -> str:
    kilobytes = short(work.page_bytes / 1e3)
    parts = [
        f"{short(one.cpu_page)} + {short(one.cpu_kilobyte)} x {kilobytes} kB + {short(one.cpu_link)} x "
        f"{short(work.links_per_page)} links + {short(one.cpu_new_url)} x {short(work.seen_urls(one) / work.pages)} new"
    ]
    if work.tls:
        parts.append(
            f"{short(one.cpu_tls_kilobyte)} x {short(work.transfer * work.page_bytes / 1e3 * work.tls)} kB of TLS"
        )
    if work.archive:
        parts.append(f"{short(one.cpu_archive_page)} + {short(one.cpu_archive_kilobyte)} x {kilobytes} kB to archive")
    connection = arithmetic.connection_us(work, one)
    parts.append(f"{short(connection)} x {_counted(work.new_connections / work.pages, 'connection')}")
    parts.append(f"{short(one.cpu_domain)} x {short(arithmetic.fetched_domains(work) / work.pages)} fetched")
    return " + ".join(parts)


def _redis(work: Workload, one: Constants, machines: Machines) -> list[Line]:
    used = arithmetic.usage_of(work, one)
    cores = used.redis_cpu_s / work.seconds / one.used_share
    memory = used.redis_bytes * one.headroom
    for_memory = memory / machines.redis_bytes
    urls, page_us, fetched = work.seen_urls(one), arithmetic.redis_page_us(work, one), arithmetic.fetched_domains(work)
    pushed = _counted(arithmetic.pushed_domains(work, one), "pushed domain")
    return [
        Line(
            "Redis cores",
            cores,
            "",
            f"({short(work.pages)} pages x ({short(page_us)} us + {pushed} x {short(one.redis_us_push)} us) + "
            f"{short(urls)} URLs x {short(one.redis_us_url)} us + {short(fetched)} fetched x "
            f"{short(one.redis_us_domain)} us) / {short(work.seconds)} s / {one.used_share:g} busy",
        ),
        Line(
            "Redis memory",
            memory,
            "B",
            f"({short(urls)} URLs x {short(one.memory_seen)} B + {short(arithmetic.queued_urls(work, one))} queued x "
            f"{short(arithmetic.queued_bytes(work, one))} B + {_counted(work.domains, 'domain')} x "
            f"{short(one.memory_domain)} B + {short(fetched)} fetched x {short(one.memory_robots)} B + "
            f"{short(work.shards)} shards x {short(one.memory_shard)} B + "
            f"{quantity(one.memory_server, 'B')}) x {one.headroom:g}",
        ),
        Line(
            "Redis nodes",
            max(1, math.ceil(max(cores, for_memory))),
            "",
            f"the larger of CPU ({short_above(cores)}, a core each) and memory ({short_above(for_memory)}, "
            f"{quantity(machines.redis_bytes, 'B')} each), rounded up",
        ),
    ]


def _traffic(work: Workload, one: Constants) -> list[Line]:
    used = arithmetic.usage_of(work, one)
    size = quantity(work.page_bytes, "B")
    return [
        Line(
            "bandwidth",
            used.received_bytes * 8 / work.seconds,
            "bit/s",
            f"{short(work.pages_per_s)} pages/s x ({size} x {work.transfer:.2g} as sent + {short(one.header_bytes)} B) x 8",
        ),
        Line(
            "disk",
            used.disk_bytes,
            "B",
            f"{short(work.pages)} pages x ({size} x {work.compression:.2g} + {short(one.disk_page)} B + "
            f"{short(work.links_per_page)} links x {short(one.disk_link)} B) + {short(arithmetic.fetched_domains(work))} "
            f"fetched x {short(one.disk_domain)} B"
            if work.archive
            else "no archive",
        ),
    ]


def _politeness(work: Workload, largest: float) -> list[Line]:
    rate = arithmetic.domain_pages_per_s(work)
    bound = arithmetic.polite_pages_per_s(work)
    at_once = work.parallel if not work.delay_s and work.parallel > 1 else 1
    together = f"{at_once:g} / "
    turn = f"({short(work.delay_s)} s delay + {short(work.response_s)} s response)"
    lines = [
        Line("politeness bound", bound, "pages/s", f"{_counted(work.domains, 'domain')} x {together}{turn}"),
        Line("shortest time", work.pages / bound / 86_400, "d", "pages / politeness bound, with domains of equal size"),
        Line("largest domain possible", work.seconds * rate, "pages", f"{short(work.days)} d x {together}{turn}"),
    ]
    if largest:
        formula = f"{short(largest)} pages x {turn} / " + (f"{at_once:g} / " if at_once > 1 else "") + "86,400"
        lines.append(Line("time of the largest domain", largest / rate / 86_400, "d", formula))
    return lines


def _counted(number: float, noun: str) -> str:
    """Return `number` with `noun` or its plural."""
    return f"{short(number)} {noun}{'' if short(number) == '1' else 's'}"


def _limit(work: Workload, value: dict[str, float], for_cpu: float, for_memory: float) -> tuple[str, bool]:
    """Return the limiting factor, and whether politeness allows the plan."""
    if value["shortest time"] > work.days:
        least = quantity(value["shortest time"], "d")
        return f"politeness: not possible in {quantity(work.days, 'd')}, these domains take {least} at least", False
    if value.get("time of the largest domain", 0) > work.days:
        least = quantity(value["time of the largest domain"], "d")
        return f"politeness: not possible in {quantity(work.days, 'd')}, the largest domain takes {least}", False
    needed = max(value["shortest time"], value.get("time of the largest domain", 0))
    if needed / work.days > LONG:
        return f"politeness: these domains take {quantity(needed, 'd')} of {quantity(work.days, 'd')}", True
    if for_memory > for_cpu:
        part = value["Redis memory"] / (value["Redis memory"] + value["memory of replicas"])
        told = "it takes more machines than the CPU does" if for_memory > 1 else "one machine has enough of it"
        return f"memory of {'Redis' if part > 0.5 else 'the replicas'}: {told}", True
    return "CPU of the replicas" if value["cores"] >= value["Redis cores"] else "CPU of Redis", True
