"""What a replica does when what it depends on is slow: it leases less, and nothing piles up.

    python -m bench.backpressure [--seconds 20]

A web without end, 5,000 domains, a delay of a second; the same replica goes through five phases of so many seconds: at
full speed, with a sink that takes 20 ms a page, at full speed, with a Redis whose replies come 300 ms late (a TCP proxy),
and at full speed again. The first phase is longer, so that caches fill.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.crawl import Look, Replica, Tables, fill, running, watch
from bench.endless import seeds, serve
from bench.measure import Figure
from crawler.worker.commit import BACKLOG as COMMIT_BACKLOG
from tests.chaos.proxy import Link
from tests.throttled_sink import throttle
from tests.valkey import ValkeyProcess

DOMAINS, LINKS = 5_000, 20
SINK_S, REDIS_S = 0.02, 0.3
MAY_GROW_MB = 30
BACKLOG = COMMIT_BACKLOG + 64
"""Results that may wait: those of the workers, all at the door, are at most so many more."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What was seen in one phase: rates a second, the largest backlogs, and memory at its begin and at most."""

    name: str
    pages_per_s: float
    leases_per_s: float
    backlog: float
    leased_urls: float
    began_mb: float
    most_mb: float

    @property
    def grown_mb(self) -> float:
        return self.most_mb - self.began_mb


@contextmanager
def slow_way(upstream: Path) -> Iterator[Link]:
    """A proxy to the server at `upstream`, in a thread and event loop of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    link = Link(upstream)
    asyncio.run_coroutine_threadsafe(link.start(), loop).result()
    try:
        yield link
    finally:
        asyncio.run_coroutine_threadsafe(link.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def phases(seconds: float, between_s: float) -> Generator[Phase]:
    """The five phases of one crawl. `between_s`: of those at full speed after the first."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, serve(DOMAINS, LINKS) as host_map:
        folder = Path(scratch)
        with ValkeyProcess(folder, persistent=False) as valkey, slow_way(valkey.socket) as link:
            fill(valkey.url, settings(host_map), seeds(DOMAINS))
            with running(f"redis://127.0.0.1:{link.port}", folder) as replica:
                out = folder / "out"
                yield _phase(replica, "full speed", 1.5 * seconds, lambda: None)
                yield _phase(replica, "slow sink", seconds, lambda: throttle(out, SINK_S))
                yield _phase(replica, "full speed", between_s, lambda: throttle(out, 0.0))
                yield _phase(replica, "slow Redis", seconds, lambda: setattr(link, "delay_s", REDIS_S))
                yield _phase(replica, "full speed", between_s, lambda: setattr(link, "delay_s", 0.0))


def settings(host_map: list[str]) -> Tables:
    return {
        "politeness": {"delay": 1.0, "address_rate_limit": "off"},
        "fetch": {"host_map": host_map},
        "scope": {"kind": "any"},
        "archive": {"sinks": ["tests.throttled_sink:ThrottledSink"]},
    }


def _phase(replica: Replica, name: str, seconds: float, begin: Callable[[], None]) -> Phase:
    """Begin a phase, let it settle for a fifth of its time, and watch it for the rest."""
    begin()
    first, *looks = watch(replica, seconds, every=seconds / 10)
    before, after = looks[0], looks[-1]
    return Phase(
        name,
        (after.pages - before.pages) / (after.at - before.at),
        after.since(before, "domains_leased_total"),
        _most(looks, "commit_backlog_pages"),
        _most(looks, "leased_urls"),
        first.rss_mb,
        max(look.rss_mb for look in looks),
    )


def _most(looks: list[Look], name: str) -> float:
    return max(look.values[name] for look in looks)


def short() -> list[Figure]:
    """For the table of all benchmarks: phases of 8 seconds, without the last one."""
    with closing(phases(8, between_s=3)) as run:
        _, slow_sink, _, slow_redis = islice(run, 4)
    figures = []
    for phase in (slow_sink, slow_redis):
        what, held, flat = f"{phase.name}: ", phase.backlog <= BACKLOG, phase.grown_mb < MAY_GROW_MB
        figures.append(Figure("backpressure", what + "pages a second", phase.pages_per_s, "pages/s"))
        figures.append(Figure("backpressure", what + "backlog at most", phase.backlog, "pages", f"<= {BACKLOG}", held))
        figures.append(Figure("backpressure", what + "memory grown", phase.grown_mb, "MB", f"< {MAY_GROW_MB}", flat))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    print(f"{'':11} {'pages/s':>8} {'leases/s':>9} {'backlog':>8} {'URLs leased':>12} {'MB':>5} {'grown':>6}")
    for phase in phases(options.seconds, options.seconds):
        print(f"{phase.name:11} {phase.pages_per_s:8,.0f} {phase.leases_per_s:9,.0f} {phase.backlog:8,.0f} ", end="")
        print(f"{phase.leased_urls:12,.0f} {phase.began_mb:5.0f} {phase.grown_mb:+6.0f}", flush=True)


if __name__ == "__main__":
    main()
