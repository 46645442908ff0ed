"""`crawler run --replicas N` on one machine: pages a second, CPU and memory; and what the memory of one replica is for.

    python -m tests.bench.replicas [--copies 8] [--runs 3] [--replicas 1 2 4]

The crawl is that of `tests.bench.throughput`: real pages without a delay, on one Valkey. CPU is of all replicas and the
process that starts them, from start to end, at full speed (`tests.bench.speed`), without nginx and Valkey. Memory is the
most that all these have at the same time; what they share counts once. The machine should have a core for each replica, one
for nginx and one for Valkey: with fewer, pages a second only show how the cores are shared.

The second table is of a crawl of the same pages by one replica with the embedded server: resident memory of a bare Python,
with the imports of `crawler run`, of a replica that has fetched one page, and at most during the crawl.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.bench.docweb import DocWeb, serve
from tests.bench.measure import Figure, median, used_by
from tests.bench.process_tree import TreeMemory
from tests.bench.speed import speedometer
from tests.bench.throughput import Run, by_socket, in_scratch, run_product, settings_of

CRAWLER = (sys.executable, "-m", "crawler")
IDLE_S = 4.0


@dataclass(frozen=True, slots=True)
class Several:
    """A crawl with several replicas, and the most memory of all its processes but the server."""

    run: Run
    memory_mb: float


def crawl(web: DocWeb, replicas: int) -> Several:
    """Crawl `web` with so many replicas."""
    memory = TreeMemory(("replica", "command", "offload process"))
    run, _ = in_scratch(partial(run_product, web, by_socket, replicas=replicas))
    memory.stop()
    return Several(run, memory.peak_mb)


def show(replicas: int, runs: Sequence[Several]) -> None:
    """A line of the first table."""
    us = [1e6 / one.run.pages_per_cpu_s for one in runs]
    rate = median(one.run.pages / one.run.usage.wall_s for one in runs)
    print(f"{replicas:8} {rate:8,.0f} {median(us):8,.0f}  {min(us):5,.0f} to {max(us):5,.0f} ", end="")
    print(f"{median(one.run.redis_us for one in runs):9.1f} {median(one.memory_mb for one in runs):6.0f}", flush=True)


def parts(web: DocWeb) -> dict[str, float]:
    """Resident MB, by what they are for."""
    found = {
        "Python": _resident("pass"),
        "... with the imports": _resident("import crawler.cli.crawl, crawler.app.run"),
    }
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder, pid_file = Path(scratch), Path(scratch) / ".crawler" / "valkey.pid"
        memory = TreeMemory(pid_file=pid_file)
        idle = subprocess.Popen(_prepared(web, folder, "idle", "[limits]\nmax_pages = 1\n"), stderr=subprocess.DEVNULL)
        time.sleep(IDLE_S)
        idle.terminate()
        idle.wait()
        memory.stop()
        found["... after one page"] = memory.resident_mb["command"]
        found["embedded server after one page"] = memory.resident_mb["server"]
        run = [*_prepared(web, folder, "crawl"), "--until-empty"]
        memory = TreeMemory(pid_file=pid_file)
        used_by(run, env={"CRAWLER_REPLICA__LOG_LEVEL": "warning"})
        memory.stop()
    found["... during the crawl"] = memory.resident_mb["command"]
    found["embedded server during the crawl"] = memory.resident_mb["server"]
    found["offload process"] = memory.resident_mb["offload process"]
    return found


def _prepared(web: DocWeb, folder: Path, name: str, more: str = "") -> list[str]:
    """Create the crawl `name` of `web`, with `more` settings; returns the command that runs it."""
    seeds, settings = folder / "seeds.txt", folder / f"{name}.toml"
    seeds.write_text("\n".join(web.address_seeds))
    settings.write_text(settings_of(web) + more)
    where = ["--crawl", name, "--data-dir", str(folder / ".crawler"), "--settings", str(settings)]
    subprocess.run([*CRAWLER, "seed", "-f", str(seeds), *where], check=True, capture_output=True)
    return [*CRAWLER, "run", *where, "--out", str(folder / "out")]


def _resident(code: str) -> float:
    """MB of a Python that has run `code`."""
    tell = "; print(open('/proc/self/statm').read().split()[1])"
    text = subprocess.run([sys.executable, "-c", code + tell], check=True, capture_output=True, text=True).stdout
    return int(text) * 4096 / 2**20


def short() -> list[Figure]:
    """For the table of all benchmarks: two replicas against one."""
    speedometer()
    with serve(2) as web:
        one, two = crawl(web, 1), crawl(web, 2)
    more = one.run.pages_per_cpu_s / two.run.pages_per_cpu_s
    return [
        Figure("replicas", "CPU a page of two replicas", more, "times of one"),
        Figure("replicas", "memory of two replicas", two.memory_mb, "MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=8, help="sites of each documentation package")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    options = parser.parse_args()
    speedometer()
    with serve(options.copies) as web:
        print(f"{'replicas':>8} {'pages/s':>8} {'us/page':>8}  {'from to':14} {'of Redis':>9} {'MB':>6}")
        runs = [[crawl(web, count) for count in options.replicas] for _ in range(options.runs)]
        for number, count in enumerate(options.replicas):
            show(count, [one[number] for one in runs])
        print(f"\n{'resident memory':36} {'MB':>5}")
        for name, megabytes in parts(web).items():
            print(f"{name:36} {megabytes:5.0f}")


if __name__ == "__main__":
    main()
