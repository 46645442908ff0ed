"""A broad crawl over HTTPS: nearly every page is the first of its domain.

    python -m bench.broad [--domains 20000] [--marks 4]

Each page costs a lease, a new connection with a verified chain of certificates (half of them ECDSA, half RSA), a
robots.txt, a pause of a second, and 30 KB of HTML over the same connection (`bench.tlsweb`). All domains are queued
beforehand, and links are found, but not followed. CPU is of the whole replica after its start, without nginx and Valkey, at
full speed (`bench.speed`). Aims: 450 pages per CPU second, and memory that stays the same from a quarter on. With
more domains, nothing may grow with their number but what Valkey keeps of each. The last result is in
docs/explanation/speed.md.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.crawl import Look, Replica, fill, running, watch
from bench.measure import Figure, cpu_s, rss_mb
from bench.speed import speedometer
from bench.tlsweb import TlsWeb, domain, serve
from frontier.entries import Entry
from tests.valkey import ValkeyProcess

AIM = 450.0
MAY_GROW_MB = 15
"""From the first mark on, as in `bench.memory`."""

LONGEST_S = 330.0


@dataclass(frozen=True, slots=True)
class Stretch:
    """The crawl until so many domains were done: since the mark before, pages per CPU second at full speed, Valkey's
    microseconds a page, and pages a second of the clock; so far, the peak memory in MB; and what Valkey takes in MB."""

    domains: int
    pages_per_cpu_s: float
    redis_us: float
    pages_per_s: float
    peak_mb: float
    redis_mb: float


def crawl(web: TlsWeb, domains: int, marks: int = 4) -> list[Stretch]:
    """Crawl a page of each of `domains`, in so many stretches."""
    speedometer()
    stretches: list[Stretch] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey:
            names = map(domain, range(domains))
            fill(valkey.url, _settings(web), (Entry(f"https://{name}/", name) for name in names))
            with running(valkey.url, folder, {"SSL_CERT_FILE": str(web.authorities)}) as replica:
                before, redis_s = replica.look(), cpu_s(valkey.pid)
                for look in watch(replica, LONGEST_S):
                    if look.pages >= domains * (len(stretches) + 1) // marks:
                        stretches.append(_stretch((before, look), (redis_s, cpu_s(valkey.pid)), replica, valkey.pid))
                        before, redis_s = look, cpu_s(valkey.pid)
                        if len(stretches) == marks:
                            return stretches
    raise SystemExit(f"{look.pages:,.0f} of {domains:,} pages in {LONGEST_S:.0f} s: {stretches}")


def _stretch(looks: tuple[Look, Look], redis_s: tuple[float, float], replica: Replica, valkey: int) -> Stretch:
    before, after = looks
    if after.values.get("page_reasons_total ok", 0) < after.pages:
        raise SystemExit("a server did not answer with the page")
    speed, pages = speedometer().mean(before.at, after.at), after.pages - before.pages
    cpu, redis = (after.cpu_s - before.cpu_s) * speed, (redis_s[1] - redis_s[0]) * speed
    rate = pages / (after.at - before.at)
    return Stretch(int(after.pages), pages / cpu, redis / pages * 1e6, rate, _peak_mb(replica.pid), rss_mb(valkey))


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
        (seen,) = crawl(web, 2_000, marks=1)
    rate, peak = seen.pages_per_cpu_s, seen.peak_mb
    return [
        Figure("broad", "pages per CPU second over HTTPS", rate, "pages/CPU s", f">= {AIM:g}", rate >= AIM),
        Figure("broad", "peak memory", peak, "MB", "< 350", peak < 350),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=20_000)
    parser.add_argument("--marks", type=int, default=4)
    options = parser.parse_args()
    with serve() as web:
        stretches = crawl(web, options.domains, options.marks)
        connections = web.connections_a_site()
    print(f"{'domains':>8} {'pages/CPU s':>12} {'pages/s':>8} {'of Redis':>9} {'peak MB':>8} {'Redis MB':>9}")
    for seen in stretches:
        print(f"{seen.domains:8,} {seen.pages_per_cpu_s:12,.0f} {seen.pages_per_s:8,.0f} {seen.redis_us:9.1f} ", end="")
        print(f"{seen.peak_mb:8.0f} {seen.redis_mb:9.0f}")
    grown = stretches[-1].peak_mb - stretches[0].peak_mb
    print(f"memory grown by {grown:.0f} MB (aim: at most {MAY_GROW_MB}); {connections:.2f} connections a domain")


if __name__ == "__main__":
    main()
