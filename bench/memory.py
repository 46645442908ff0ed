"""The memory of a replica while a crawl grows: flat, whatever it has discovered.

    python -m bench.memory [--urls 5000000] [--domains 200000] [--links 200] [--seconds 240]

A web without end (`bench.endless`) with a delay of a second a domain: each page links to 200 new URLs all over the
domains, so the replica fetches a robots.txt before nearly every page, and leases as many domains as it may hold. One line
for each tenth; it ends when `--urls` are discovered or `--seconds` have passed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.crawl import Look, Tables, fill, running, watch
from bench.endless import seeds, serve
from bench.measure import Figure, rss_mb
from tests.valkey import ValkeyProcess

LIMIT_MB = 250
MAY_GROW_MB = 15
"""From the first million on: what an allocator may need for the same objects in another order."""

SETTLED_IN = 1_000_000
"""Discovered URLs after which caches are full and memory should no longer grow."""


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stood: URLs discovered, pages fetched, domains under lease, MB of the replica and of Valkey."""

    discovered: int
    pages: int
    domains: int
    rss_mb: float
    valkey_mb: float


def grow(urls: int, domains: int, links: int, seconds: float) -> Iterator[Moment]:
    """Crawl until `urls` are discovered or `seconds` have passed; ten moments on the way, and the last."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, serve(domains, links) as host_map:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey:
            fill(valkey.url, settings(host_map), seeds(1_000), shards=1_024)
            with running(valkey.url, folder) as replica:
                due = urls / 10
                moment = None
                for look in watch(replica, seconds):
                    moment = _moment(look, rss_mb(valkey.pid))
                    if moment.discovered >= due:
                        yield moment
                        due = (moment.discovered * 10 // urls + 1) * urls / 10
                    if moment.discovered >= urls:
                        return
                if moment:
                    yield moment


def _moment(look: Look, valkey_mb: float) -> Moment:
    discovered = look.values["links_total accepted"]
    return Moment(int(discovered), int(look.pages), int(look.values["leased_domains"]), look.rss_mb, valkey_mb)


def settings(host_map: list[str]) -> Tables:
    return {
        "politeness": {"delay": 1.0, "address_rate_limit": "off"},
        "fetch": {"host_map": host_map},
        "scope": {"kind": "any"},
    }


def growth(moments: list[Moment]) -> float:
    """MB by which memory grew from the first moment after SETTLED_IN to its most."""
    late = [moment.rss_mb for moment in moments if moment.discovered >= SETTLED_IN]
    return max(late) - late[0] if late else 0.0


def short() -> list[Figure]:
    """For the table of all benchmarks: 300,000 URLs."""
    moments = list(grow(300_000, 20_000, 200, 60))
    last = moments[-1]
    what = f"replica after {last.discovered:,} URLs discovered"
    return [Figure("memory", what, last.rss_mb, "MB", f"< {LIMIT_MB}", last.rss_mb < LIMIT_MB)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=5_000_000)
    parser.add_argument("--domains", type=int, default=200_000)
    parser.add_argument("--links", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=240)
    options = parser.parse_args()
    print(f"{'discovered':>10} {'pages':>7} {'domains':>7} {'replica MB':>10} {'Valkey MB':>10}")
    moments = []
    for moment in grow(options.urls, options.domains, options.links, options.seconds):
        moments.append(moment)
        print(f"{moment.discovered:10,} {moment.pages:7,} {moment.domains:7,} ", end="")
        print(f"{moment.rss_mb:10.0f} {moment.valkey_mb:10.0f}", flush=True)
    print(f"grown since {SETTLED_IN:,}: {growth(moments):.0f} MB")


if __name__ == "__main__":
    main()
