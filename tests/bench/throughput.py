"""Pages per CPU second: the whole product against a bare aiohttp fetch loop, on the same real pages, in one run.

    python -m tests.bench.throughput [--copies 4] [--runs 3]

WARC, JSON lines, robots.txt and the politeness state are on; concurrency 64, no delay, one replica.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.docweb import DocWeb, serve
from tests.valkey import ValkeyProcess

BARE = """
import asyncio, sys, aiohttp
async def main():
    port, urls = int(sys.argv[1]), sys.stdin.read().split()
    octets = 0
    class Resolver(aiohttp.abc.AbstractResolver):
        async def resolve(self, host, port_=0, family=0):
            return [dict(hostname=host, host='127.0.0.1', port=port, family=2, proto=0, flags=0)]
        async def close(self): pass
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64, resolver=Resolver())) as session:
        pending = iter(urls)
        async def work():
            nonlocal octets
            for url in pending:
                async with session.get(url) as response:
                    octets += len(await response.read())
        await asyncio.gather(*(work() for _ in range(64)))
    print(octets)
asyncio.run(main())
"""


@dataclass(frozen=True, slots=True)
class Figures:
    """One program's run: pages fetched, CPU seconds of its process, wall seconds, peak memory, CPU of Valkey."""

    pages: int
    cpu_s: float
    wall_s: float
    peak_mb: float
    valkey_us_per_page: float = 0.0

    @property
    def pages_per_cpu_s(self) -> float:
        return self.pages / self.cpu_s


def measured(words: list[str], stdin: bytes = b"", env: dict[str, str] | None = None) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak MB of the process `words`."""
    started = time.monotonic()
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env={**os.environ, **(env or {})}
    )
    assert process.stdin is not None
    process.stdin.write(stdin)
    process.stdin.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{words[:4]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - started, usage.ru_maxrss / 1024


def run_crawler(web: DocWeb, scratch: Path) -> tuple[Figures, list[str]]:
    """One replica of the product; returns the URLs that it fetched, too."""
    out, seeds, settings = scratch / "out", scratch / "seeds.txt", scratch / "settings.toml"
    seeds.write_text("\n".join(web.seeds))
    settings.write_text(
        f"[politeness]\ndelay = 0\n[frontier]\nshards = 64\n"
        f"[fetch]\nhost_map = {web.host_map!r}\n[archive]\nlinks = true\n"
    )
    with ValkeyProcess(scratch, persistent=False) as valkey:
        crawler = [sys.executable, "-m", "crawler"]
        where = ["--redis", valkey.url, "--settings", str(settings)]
        subprocess.run([*crawler, "seed", "-f", str(seeds), *where], check=True, stdout=subprocess.DEVNULL)
        before = _cpu_of(valkey.pid)
        run = [*crawler, "run", *where, "--out", str(out), "--until-empty", "--interval", "1"]
        cpu_s, wall_s, peak_mb = measured(run, env={"CRAWLER_REPLICA__LOG_LEVEL": "warning"})
        valkey_s = _cpu_of(valkey.pid) - before
    lines = [msgspec.json.decode(line) for path in out.glob("*.jsonl") for line in path.open("rb")]
    urls = [line["url"] for line in lines if line["status"]]
    return Figures(len(urls), cpu_s, wall_s, peak_mb, valkey_s / len(urls) * 1e6), urls


def run_bare(web: DocWeb, urls: list[str]) -> Figures:
    """A loop that fetches `urls` and does nothing else."""
    words = [sys.executable, "-c", BARE, str(web.port)]
    return Figures(len(urls), *measured(words, "\n".join(urls).encode()))


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=4, help="domains for each documentation package")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    results: dict[str, list[Figures]] = {"bare aiohttp": [], "peercrawl": []}
    with serve(options.copies) as web:
        for _ in range(options.runs):
            with tempfile.TemporaryDirectory() as scratch:
                figures, urls = run_crawler(web, Path(scratch))
            results["peercrawl"].append(figures)
            results["bare aiohttp"].append(run_bare(web, urls))
    bare = statistics.median(figures.pages_per_cpu_s for figures in results["bare aiohttp"])
    print(f"{'':14} {'pages/CPU s':>12} {'ratio':>6} {'wall s':>7} {'peak MB':>8} {'Valkey us/page':>15}")
    for name, runs in results.items():
        rate = statistics.median(figures.pages_per_cpu_s for figures in runs)
        wall, peak, valkey = (
            statistics.median(getattr(figures, field) for figures in runs)
            for field in ("wall_s", "peak_mb", "valkey_us_per_page")
        )
        print(f"{name:14} {rate:12,.0f} {rate / bare:6.2f} {wall:7.1f} {peak:8.0f} {valkey:15.1f}")


if __name__ == "__main__":
    main()
