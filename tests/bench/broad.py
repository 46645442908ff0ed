"""A broad crawl over HTTPS: nearly every page is the first of its domain.

    python -m tests.bench.broad [--domains 20000]

Each page costs a lease, a new connection with a verified chain of certificates (half of them ECDSA, half RSA), a
robots.txt, a pause of a second, and 30 KB of HTML over the same connection (`tests.bench.tlsweb`). All domains are queued
beforehand, and links are found, but not followed. CPU is of the whole replica after its start, without nginx and Valkey, at
full speed (`tests.bench.speed`). Aims: 450 pages per CPU second, and memory that stays the same from a quarter on.
docs/explanation/speed.md has the last result.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from frontier.entries import Entry
from tests.bench.crawl import Look, fill, running, watch
from tests.bench.measure import Figure, cpu_s
from tests.bench.speed import speedometer
from tests.bench.tlsweb import TlsWeb, domain, serve
from tests.valkey import ValkeyProcess

AIM = 450.0
MAY_GROW_MB = 15
"""From a quarter of the domains on, as in `tests.bench.memory`."""

LONGEST_S = 280.0


@dataclass(frozen=True, slots=True)
class Broad:
    """Pages per CPU second at full speed, Valkey's microseconds a page, connections a domain, pages a second of the clock,
    and the peak memory so far in MB when a quarter, a half and all of the domains were crawled."""

    pages_per_cpu_s: float
    redis_us: float
    connections: float
    pages_per_s: float
    peak_mb: tuple[float, ...]

    @property
    def grown_mb(self) -> float:
        return self.peak_mb[-1] - self.peak_mb[0]


def crawl(web: TlsWeb, domains: int) -> Broad:
    """Crawl a page of each of `domains`."""
    speedometer()
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey:
            names = map(domain, range(domains))
            fill(valkey.url, _settings(web), (Entry(f"https://{name}/", name) for name in names))
            with running(valkey.url, folder, {"SSL_CERT_FILE": str(web.authorities)}) as replica:
                first = last = replica.look()
                redis_s, peaks, marks = cpu_s(valkey.pid), [], [domains // 4, domains // 2, domains]
                for last in watch(replica, LONGEST_S):
                    while marks and last.pages >= marks[0]:
                        peaks.append(_peak_mb(replica.pid))
                        marks.pop(0)
                    if not marks:
                        break
                redis_s = cpu_s(valkey.pid) - redis_s
    if marks:
        raise SystemExit(f"{last.pages:,.0f} of {domains:,} pages in {LONGEST_S:.0f} s")
    return _result(web, first, last, redis_s, tuple(peaks))


def _result(web: TlsWeb, first: Look, last: Look, redis_s: float, peaks: tuple[float, ...]) -> Broad:
    speed, pages = speedometer().mean(first.at, last.at), last.pages - first.pages
    if last.values.get("page_reasons_total ok", 0) < last.pages:
        raise SystemExit("a server did not answer with the page")
    cpu = (last.cpu_s - first.cpu_s) * speed
    rate = pages / (last.at - first.at)
    return Broad(pages / cpu, redis_s * speed / pages * 1e6, web.connections_a_site(), rate, peaks)


def _settings(web: TlsWeb) -> dict[str, dict[str, object]]:
    return {
        "politeness": {"address_rate_limit": "off"},
        "scope": {"max_depth": 0},
        "fetch": {"host_map": web.host_map},
        "archive": {"revisits": 0},  # all bodies are equal
    }


def _peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) / 1024


def short() -> list[Figure]:
    """For the table of all benchmarks: 2,000 domains."""
    with serve() as web:
        seen = crawl(web, 2_000)
    rate, peak = seen.pages_per_cpu_s, seen.peak_mb[-1]
    return [
        Figure("broad", "pages per CPU second over HTTPS", rate, "pages/CPU s", f">= {AIM:g}", rate >= AIM),
        Figure("broad", "peak memory", peak, "MB", "< 350", peak < 350),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=20_000)
    options = parser.parse_args()
    with serve() as web:
        seen = crawl(web, options.domains)
    print(f"{seen.pages_per_cpu_s:,.0f} pages per CPU second, {seen.pages_per_s:,.0f} a second, ", end="")
    print(f"{seen.redis_us:.0f} us of Valkey a page, {seen.connections:.2f} connections a domain")
    quarter, half, end = seen.peak_mb
    print(f"peak memory: {quarter:.0f} MB at a quarter, {half:.0f} at half, {end:.0f} at the end")


if __name__ == "__main__":
    main()
