"""Many domains with a delay of a second on one replica: the rate, how late each has its turn, and what waiting costs.

    python -m bench.politeness [--domains 20000] [--seconds 60] [--rounds 5]

nginx answers under all names with one page of 2 KB without links, and ends each connection, as most of so many sites would
before they are asked again; its log is the referee. That none has a robots.txt is known beforehand: to find out would cost
a crawl of few pages a domain more than one of many. Lateness is the start of a request less the end of the domain's
response before it and the delay. The crawls, the first two in rounds, since machines differ from minute to minute:

- *no delay*: the domains of the first crawl without a delay: what the processor can do;
- *all*: each domain may be asked every second, which is more than that, so the rate should be the same;
- *half*: as many domains as keep a core half busy: nothing should be late;
- *waiting*: all domains under lease, none due: what a replica uses that only waits.

CPU, the replica's and Redis's a page, is told at full speed, which `bench.speed` watches. *Awake* is the share of the
time in which the replica had something to do, ran or waited for a core that somebody else had. The bound is what the crawl
without a delay before it would have fetched with the processor time that the replica would have been given, had it always
been awake.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from bench.crawl import Tables, fill, running
from bench.docweb import nginx
from bench.measure import Figure, Wakefulness, cpu_s, median, percentile
from bench.speed import speedometer
from frontier.entries import Entry
from tests.ports import free_port
from tests.valkey import ValkeyProcess

DELAY_S = 1.0
PATIENT_S = 600.0
"""The delay of the crawl that only waits."""

PAGE = "<!doctype html><title>A page</title>" + "<p>Nothing that leads anywhere.</p>" * 56

CONFIGURATION = """
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 30000; }}
http {{
  log_format turn '$msec $request_time $host $uri';
  access_log {folder}/access.log turn buffer=64k flush=200ms;
  default_type text/html; {keepalive} server_names_hash_bucket_size 128;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    root {folder};
    location = /robots.txt {{ return 404; }}
    location / {{ try_files /page.html =404; }}
  }}
}}
"""


@dataclass(frozen=True, slots=True)
class Paced:
    """One crawl: pages a second while it ran evenly, cores used by the replica and by Redis, the share of the time in which
    the replica was awake, seconds of lateness of each turn, and how fast the machine was meanwhile."""

    domains: int
    pages_per_s: float
    cores: float
    redis_cores: float
    awake: float
    lateness: list[float]
    speed: float

    def us_a_page(self, cores: float) -> float:
        """CPU a page, at full speed, of what keeps so many cores busy."""
        return cores * self.speed / self.pages_per_s * 1e6 if self.pages_per_s else 0.0

    def of_bound(self, free: Paced, delay_s: float) -> float:
        """The rate, as a share of the most that is possible with this delay and with the CPU a page of the crawl `free`."""
        given = self.cores / self.awake if self.awake else 1.0
        processor = given * self.speed / free.us_a_page(free.cores) * 1e6
        return self.pages_per_s / min(processor, self.domains / delay_s if delay_s else processor)


@contextmanager
def web(folder: Path, keeps_connections: bool = False) -> Iterator[int]:
    """The server; yields its port."""
    port = free_port()
    (folder / "page.html").write_text(PAGE)
    keepalive = "keepalive_timeout 600; keepalive_requests 1000000;" if keeps_connections else "keepalive_timeout 0;"
    with nginx(folder, CONFIGURATION.format(folder=folder, port=port, keepalive=keepalive), port):
        yield port


def entries(domains: Sequence[str], urls: int) -> Iterator[Entry]:
    """`urls` URLs of each of `domains`."""
    for domain in domains:
        for page in range(urls):
            yield Entry(f"http://{domain}/{page}", domain)


def crawl(domains: int, delay_s: float, warm_s: float, seconds: float) -> Paced:
    """Crawl `domains` for `warm_s` seconds, then measure for `seconds`."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        with web(folder) as port, ValkeyProcess(folder, persistent=False) as valkey:
            # At most a page a millisecond, shared by the domains, and in no lease more than 30.
            urls = min(int((warm_s + seconds) / max(delay_s, 0.001)) + 2, int(1200 * (warm_s + seconds) / domains) + 32)
            names = [f"d{number:05}.test" for number in range(domains)]
            fill(valkey.url, settings(port, delay_s), entries(names, urls), without_robots=names)
            with running(valkey.url, folder) as replica:
                time.sleep(warm_s)
                before, began, redis_before_s = replica.look(), time.time(), cpu_s(valkey.pid)
                wakefulness = Wakefulness(replica.pid)
                time.sleep(seconds)
                awake, redis_s = wakefulness.share(), cpu_s(valkey.pid) - redis_before_s
                after, ended = replica.look(), time.time()
                speed = speedometer().mean(before.at, after.at)
        if after.values.get("page_reasons_total ok", 0) < after.pages:
            raise SystemExit("the server did not answer with the page")
        turns = requests(folder / "access.log")
        pages_per_s = (after.pages - before.pages) / (after.at - before.at)
        late = [late for at, late in lateness(turns, delay_s) if began <= at < ended]
        return Paced(domains, pages_per_s, after.cpu_since(before), redis_s / (ended - began), awake, late, speed)


def settings(port: int, delay_s: float) -> Tables:
    return {
        "politeness": {"delay": delay_s, "address_rate_limit": "off"},
        "fetch": {"host_map": [f"*.test=127.0.0.1:{port}"]},
        "scope": {"kind": "any"},
    }


def requests(log: Path) -> dict[str, list[tuple[float, float]]]:
    """When each request began and ended, by host, from the server's log."""
    found: dict[str, list[tuple[float, float]]] = {}
    for line in log.read_text().splitlines():
        msec, request_time, host, _ = line.split(" ")
        found.setdefault(host, []).append((float(msec) - float(request_time), float(msec)))
    return found


def lateness(turns: dict[str, list[tuple[float, float]]], delay_s: float) -> Iterator[tuple[float, float]]:
    """When each second and further turn of a domain came, and how many seconds late."""
    for times in turns.values():
        for (_, ended), (began, _) in pairwise(sorted(times)):
            yield began, began - ended - delay_s


def in_rounds(domains: int, seconds: float, rounds: int) -> Iterator[tuple[Paced, Paced]]:
    """The crawls without and with a delay of all domains, one after the other."""
    speedometer()  # which gets to know full speed meanwhile
    warm_s = 3 + domains / 4_000
    for _ in range(rounds):
        yield crawl(domains, 0.0, warm_s, seconds), crawl(domains, DELAY_S, warm_s, seconds)


def half(free: Paced, seconds: float) -> Paced:
    """As many domains as should keep a core half busy."""
    domains = max(1, int(0.5 * free.pages_per_s / free.cores * (DELAY_S + 0.005)))
    return crawl(domains, DELAY_S, warm_s=10, seconds=seconds)


def waiting(free: Paced, seconds: float) -> Paced:
    """All domains under lease, and none due."""
    until_leased_s = 10 + 1.5 * free.domains / max(1.0, free.pages_per_s)
    return crawl(free.domains, PATIENT_S, warm_s=until_leased_s, seconds=seconds)


def show(name: str, paced: Paced, free: Paced, delay_s: float) -> None:
    """A line of the table. `free`: the crawl without a delay."""
    print(f"{name:9} {paced.domains:8,} {paced.pages_per_s:8,.0f} {paced.of_bound(free, delay_s):8.0%} ", end="")
    print(f"{paced.cores:6.2f} {paced.awake:6.2f} {paced.us_a_page(paced.cores):11,.0f} ", end="")
    print(f"{paced.us_a_page(paced.redis_cores):8.1f} {paced.speed:5.2f} ", end="")
    late = paced.lateness if delay_s == DELAY_S else []
    early = sum(seconds < -0.002 for seconds in late)
    typical, high, most = percentile(late, 0.5), percentile(late, 0.99), max(late, default=0.0)
    print(f"{typical:9.3f} {high:8.3f} {most:8.3f} {early:7,}" if late else "", flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: 2,000 domains. A replica that only waits runs beside one at half load."""
    ((free, full),) = in_rounds(2_000, 8, rounds=1)
    share = full.of_bound(free, DELAY_S)
    with ThreadPoolExecutor(1) as beside:
        rests = beside.submit(waiting, free, 4)
        late = percentile(half(free, 8).lateness, 0.99)
        resting = rests.result()
    return [
        Figure("politeness", "rate of 2,000 domains, of what the CPU can do", 100 * share, "%", ">= 95", share >= 0.95),
        Figure("politeness", "lateness at half load, p99", late, "s", "< 1", late < 1),
        Figure("politeness", "CPU of waiting", resting.cores * 100, "% of a core"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--domains", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(
        f"{'':9} {'domains':>8} {'pages/s':>8} {'of bound':>8} {'cores':>6} {'awake':>6} {'us CPU/page':>11} ", end=""
    )
    print(f"{'of Redis':>8} {'speed':>5} {'late p50':>9} {'p99':>8} {'most':>8} {'early':>7}", flush=True)
    shares = []
    for free, full in in_rounds(options.domains, options.seconds, options.rounds):
        show("no delay", free, free, 0.0)
        show("all", full, free, DELAY_S)
        shares.append(full.of_bound(free, DELAY_S))
    show("half", half(free, options.seconds), free, DELAY_S)
    show("waiting", waiting(free, options.seconds / 2), free, PATIENT_S)
    print(f"all, of bound: {median(shares):.0%}, the median of {len(shares)}")


if __name__ == "__main__":
    main()
