"""What many replicas without work cost the node of the control keys, and how soon they agree on who is there.

    python -m tests.bench.members [--replicas 1000] [--deaths 100] [--shards 1024] [--join 60] [--interval 5]

A real Valkey, and a few processes with the loops that a replica runs towards the control keys, each replica on a connection
of its own: the peer loop, the page budget, commands and settings, the health record. The replicas join evenly within
`--join` seconds; then `--deaths` of them vanish at once, without leaving. With a low `--max-pages`, permits are scarce.

Printed are the server's CPU in percent of a core and its bytes a second, in each phase and by command, and the seconds
until all views agree. The replicas of a process share one computation of the ring, with fewer virtual nodes: on machines of
their own, they would compute it side by side. If they do not get enough processor time, they call less often and miss
epochs: `calls/s` show whether they did, and `--interval` gives them more time.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.events import Events
from crawler.observe.health_record import HEALTH_INTERVALS, HealthRecord
from crawler.redis_retry import RedisRetry
from crawler.settings.crawl_tables import LimitsTable
from crawler.settings.loading import CrawlSettings
from crawler.settings.policies import politeness_policy
from crawler.worker.allowance import Allowance
from crawler.worker.delay_queue import DelayQueue
from crawler.worker.runtime import Runtime
from frontier import ring
from frontier.budget import Budget, PageLimit
from frontier.clock import SystemClock
from frontier.control import Control
from frontier.crawls import Crawl, create_crawl, open_crawl, verify_crawl
from frontier.health import Health
from frontier.peer_loop import PeerLoop, PeerSettings, View
from frontier.polling_period import REPORTS_A_SECOND, period_s
from frontier.redis_connection import fields
from frontier.store import RedisStore, command, connect
from politeness.policy import CurrentPolicy
from tests.shared_views import SharedViews, shared_views
from tests.valkey import ValkeyProcess

CRAWL = "crawl"
ADDRESS = "10.0.0.1:8080"
PROCESSES = 2
CONCURRENCY = 64
STEADY_S = 20.0
AGREE_S = 60.0
"""How long to wait at most until all views agree."""


class Seen(NamedTuple):
    """A view that a replica adopted, at `at` (monotonic seconds, the same in all processes)."""

    replica: str
    at: float
    epoch: int
    checksum: int
    replicas: int
    owned: int


class Sample(NamedTuple):
    """The server's totals: CPU seconds, bytes out and in, and (calls, microseconds) by command."""

    at: float
    cpu_s: float
    bytes_out: int
    bytes_in: int
    commands: Mapping[str, tuple[int, float]]


class Hosted(NamedTuple):
    """What a process needs to run replicas. `seen`: where it reports their views."""

    url: str
    join_s: float
    max_pages: int
    interval_s: float
    seen: Connection


class HostedMember:
    """A replica's part in the keys of the whole crawl, whether or not it has work. The loops are those of
    `crawler.app.engine` and `crawler.app.replica`."""

    def __init__(self, name: str, store: RedisStore, crawl: Crawl, max_pages: int, interval_s: float) -> None:
        clock, events, rng = SystemClock(), Events(), random.Random(name)
        settings = PeerSettings(interval_s, shards=len(crawl.keys.shards), address=ADDRESS)
        self.name = name
        self.peers = PeerLoop(store, crawl.keys.peers, clock, settings, name, rng)
        self._store = store
        self._crawl = crawl
        self._control = Control(store, crawl.keys)
        self._health = Health(store, crawl.keys.peers, HEALTH_INTERVALS * interval_s)
        server_clock = self.peers.server_clock
        budget = Budget(store, crawl.keys, server_clock, name, PageLimit(max_pages, 1))
        retry, policy = (
            RedisRetry(clock, events, rng),
            CurrentPolicy(politeness_policy(CrawlSettings.from_json(crawl.settings))),
        )
        runtime = Runtime(name, clock, server_clock, retry, events, rng, policy)
        self._allowance = Allowance(runtime, budget, DelayQueue(clock), CONCURRENCY, self._replicas)
        self._view: View | None = None

    def _replicas(self) -> int:
        return self._view.replicas if self._view else 1

    async def run(self, on_view: Callable[[View], None]) -> None:
        await self.peers.time.check(0)
        loops = (self._follow(on_view), self._allowance.run(lambda: None), self._obey(), self._report())
        await asyncio.gather(*loops)

    async def _follow(self, on_view: Callable[[View], None]) -> None:
        async for view in self.peers.views():
            await verify_crawl(self._store, self._crawl)
            self._view = view
            on_view(view)

    async def _obey(self) -> None:
        while True:
            await self._control.refresh()
            await asyncio.sleep(period_s(1.0, self._replicas()))

    async def _report(self) -> None:
        while True:
            place = (self._view.epoch, self._view.index) if self._view else (0, 0)
            record = HealthRecord(self.name, ADDRESS, *place, 1, 0, 0, 0, 0.0, 99.9, False)
            gap_s = period_s(1.0, self._replicas(), REPORTS_A_SECOND)
            await self._health.report(self.name, msgspec.json.encode(record), HEALTH_INTERVALS * gap_s)
            await asyncio.sleep(gap_s)


async def take_part(name: str, options: Hosted, shared: SharedViews) -> None:
    """Run the replica `name`."""
    store = await connect(options.url, timeout_s=20.0)
    one = HostedMember(name, store, await open_crawl(store, CRAWL), options.max_pages, options.interval_s)

    def observe(view: View) -> None:
        owned = sum(owner == name for owner in view.owners)
        options.seen.send(Seen(name, time.monotonic(), view.epoch, shared.checksum(view), view.replicas, owned))

    await one.run(observe)


def host(names: Sequence[str], options: Hosted) -> None:
    """Run the replicas `names` in this process, the first at once and the last after `join_s`."""
    ring.VIRTUAL_NODES = 5

    async def later(place: int, name: str, shared: SharedViews) -> None:
        await asyncio.sleep(options.join_s * place / len(names))
        await take_part(name, options, shared)

    async def run() -> None:
        with shared_views() as shared:
            await asyncio.gather(*(later(place, name, shared) for place, name in enumerate(names)))

    asyncio.run(run())


class Group:
    """Replicas in a process, and what they have seen last."""

    def __init__(self, names: Sequence[str], url: str, options: argparse.Namespace) -> None:
        self.names = set(names)
        self.seen: dict[str, Seen] = {}
        self._pipe, theirs = multiprocessing.Pipe(duplex=False)
        hosted = Hosted(url, options.join, options.max_pages, options.interval, theirs)
        self._process = multiprocessing.Process(target=host, args=(names, hosted), daemon=True)
        self._process.start()

    def look(self) -> dict[str, Seen]:
        if not self._process.is_alive():
            raise SystemExit("the replicas have failed")
        while self._pipe.poll():
            found: Seen = self._pipe.recv()
            self.seen[found.replica] = found
        return self.seen

    def kill(self) -> None:
        self._process.kill()
        self._process.join()


async def sample(store: RedisStore) -> Sample:
    cpu, stats, commands = await store.send([command("INFO", part) for part in ("cpu", "stats", "commandstats")])
    used, total = fields(cpu), fields(stats)
    by_command = {}
    for name, line in fields(commands).items():
        numbers = dict(pair.split("=") for pair in line.split(","))
        by_command[name.removeprefix("cmdstat_")] = (int(numbers["calls"]), float(numbers["usec"]))
    cpu_s = float(used["used_cpu_user"]) + float(used["used_cpu_sys"])
    out, into = int(total["total_net_output_bytes"]), int(total["total_net_input_bytes"])
    return Sample(time.monotonic(), cpu_s, out, into, by_command)


def show(phase: str, before: Sample, after: Sample) -> None:
    """Print what the server did between two samples."""
    seconds = after.at - before.at
    calls = {name: number - before.commands.get(name, (0, 0))[0] for name, (number, _) in after.commands.items()}
    spent = {name: us - before.commands.get(name, (0, 0.0))[1] for name, (_, us) in after.commands.items()}
    # What a script calls is counted under both names.
    print(
        f"{phase:28} {(after.cpu_s - before.cpu_s) / seconds:7.1%} of a core"
        f"  out {(after.bytes_out - before.bytes_out) / seconds / 1e6:7.3f} MB/s"
        f"  in {(after.bytes_in - before.bytes_in) / seconds / 1e6:6.3f} MB/s"
    )
    for name in sorted(spent, key=spent.__getitem__, reverse=True)[:10]:
        if calls[name]:
            share = spent[name] / seconds / 1e6
            each = spent[name] / calls[name]
            print(f"    {name:20} {calls[name] / seconds:9.1f} calls/s {each:9.1f} us each {share:7.2%} of a core")


async def wait(groups: Sequence[Group], seconds: float) -> None:
    """Wait, and read what the replicas have seen meanwhile. A full pipe would hold them up."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for group in groups:
            group.look()
        await asyncio.sleep(0.1)


async def agreed(groups: Sequence[Group], since: float) -> float:
    """Wait until all replicas have the same view, of them alone. Returns the seconds since `since` at which the last one
    adopted a view of the right size."""
    wanted = set().union(*(group.names for group in groups))
    right: dict[str, float] = {}
    while time.monotonic() < since + AGREE_S:
        await asyncio.sleep(0.1)
        views = {name: seen for group in groups for name, seen in group.look().items()}
        for name, seen in views.items():
            if seen.replicas == len(wanted) and seen.at >= since:
                right.setdefault(name, seen.at)
        latest = max((seen.epoch for seen in views.values()), default=0)
        checksums = {seen.checksum for seen in views.values() if seen.epoch == latest}
        if right.keys() >= wanted and len(checksums) == 1:
            return max(right.values()) - since
    return float("inf")


def spread(groups: Sequence[Group]) -> str:
    owned = Counter(seen.owned for group in groups for seen in group.look().values())
    return ", ".join(f"{count} replicas with {shards} shards" for shards, count in sorted(owned.items()))


async def measure(options: argparse.Namespace, valkey: ValkeyProcess) -> None:
    store = await connect(valkey.url, timeout_s=20.0)
    settings = CrawlSettings(limits=LimitsTable(max_pages=options.max_pages))
    await create_crawl(store, CRAWL, options.shards, settings.to_json())
    names = [f"crawler-{number:05}-{random.Random(number).getrandbits(32):08x}" for number in range(options.replicas)]
    doomed, living = names[: options.deaths], names[options.deaths :]
    with running([living[at::PROCESSES] for at in range(PROCESSES)], valkey.url, options) as groups:
        with running([doomed], valkey.url, options) as dying:
            before = await sample(store)
            await wait([*groups, *dying], options.join)
            joined = time.monotonic()
            took_s = await agreed([*groups, *dying], joined)
            after = await sample(store)
            show("joining", before, after)
            print(f"views agree {took_s:.1f} s after the last join; {spread([*groups, *dying])}")
            await wait([*groups, *dying], STEADY_S)
            show("with all", after, steady := await sample(store))
        died = time.monotonic()
        took_s = await agreed(groups, died)
        after = await sample(store)
        show("after the deaths", steady, after)
        print(f"views agree {took_s:.1f} s after {options.deaths} deaths; {spread(groups)}")
        await wait(groups, STEADY_S)
        show("with those that are left", after, await sample(store))
    await store.close()


@contextmanager
def running(parts: Sequence[Sequence[str]], url: str, options: argparse.Namespace) -> Iterator[list[Group]]:
    groups = [Group(part, url, options) for part in parts]
    try:
        yield groups
    finally:
        for group in groups:
            group.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=1_000)
    parser.add_argument("--deaths", type=int, default=100)
    parser.add_argument("--shards", type=int, default=1_024)
    parser.add_argument("--join", type=float, default=60.0)
    parser.add_argument("--interval", type=float, default=5.0)
    parser.add_argument("--max-pages", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ValkeyProcess(Path(scratch), persistent=False) as valkey:
        asyncio.run(measure(options, valkey))


if __name__ == "__main__":
    main()
