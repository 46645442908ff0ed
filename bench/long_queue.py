"""What one domain with many queued URLs costs, packed and unpacked: bytes per URL, calls, and the longest script.

    python -m bench.long_queue [--urls 100000 10000000] [--drain 20000] [--rounds 2] [--server FILE]

A domain gets so many URLs, `PUSH_CHUNK` in a call, as from a long seed file. Then `--drain` of them are leased, 32 at a
time, and settled in groups of 32. URLs are 76 bytes long on average, of which 31 are scheme and host; they are of one
priority, which is the hardest case for packing, because each push may change any part of the queue. Memory is the server's
`used_memory`, told apart by deleting the keys of each kind. *Move*: all keys of the shard are copied to another server with
MIGRATE, ten in a call as redis-cli does it when a hash slot moves: how long all take, and the longest call, in which the
server does nothing else. Server time is CPU of the server's process, and client time that of this process, which packs and
unpacks. The milliseconds of scripts are CPU time of the server's main thread, too. On a virtual machine, that includes time
in which the host ran something else: a loop of 0.2 ms now and then takes 3 to 7. So the calls, which are the same in each
round, count with their shortest time.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import random
import statistics
import string
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from bench.frontier import AS_DEPLOYED, Server, Step, empty_frontier, freed, step
from bench.measure import Figure
from frontier.clock import ServerClock, SystemClock
from frontier.entries import Entry
from frontier.errors import RedisMisused
from frontier.queue import PUSH_CHUNK, Frontier, FrontierSettings
from frontier.scripts import Call, Reply, command
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore
from tests.ports import free_port
from tests.valkey import ValkeyProcess

DOMAIN = "site-0000000.example"
PUSHED_AT_ONCE = PUSH_CHUNK
PACK_ABOVE = FrontierSettings().pack_above
LIMIT_BYTES, LIMIT_MS = 25, 10
MOVED_AT_ONCE = 10
"""Keys in a call of MIGRATE: the default of `redis-cli --cluster reshard` (`--cluster-pipeline`)."""
MOVE_LIMIT_MS = 50_000


@dataclass(slots=True)
class Costs:
    """Of a queue of `urls`. `memory`: bytes per URL of queue and blocks; `largest_key`: bytes.
    `client_us`: CPU of this process per URL, by step; `ms`: script -> ms of each call. `moved_s`: seconds in which
    the shard's keys move to another server; `longest_move_ms`: of one call."""

    urls: int
    memory: float = 0.0
    largest_key: int = 0
    steps: dict[str, Step] = field(default_factory=dict)
    client_us: dict[str, float] = field(default_factory=dict)
    ms: dict[str, list[float]] = field(default_factory=dict)
    moved_s: float = 0.0
    longest_move_ms: float = 0.0


def entries(count: int) -> Iterator[Entry]:
    """`count` URLs of the domain."""
    rng = random.Random(1)
    text = "".join(rng.choices(string.ascii_lowercase + "-/", k=10_000))
    for number in range(count):
        tail, at = min(110, int(rng.expovariate(1 / 42))), rng.randrange(9_900)
        yield Entry(f"https://www.{DOMAIN}/{number:x}/{text[at : at + tail]}", DOMAIN, priority=-1.0, depth=1)


async def measure(count: int, drain: int, pack_above: int, server: Server) -> Costs:
    """Fill, weigh and drain a domain."""
    costs = Costs(count)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with empty_frontier(Path(folder), server) as (frontier, store, pid):
            metered = MeteredStore(store, pid)
            settings = FrontierSettings(lease_ms=600_000, delay_ms=1, pack_above=pack_above)
            clock = ServerClock(SystemClock(), store.time_ms)
            await clock.refresh()
            frontier = Frontier(metered, frontier.keys, clock, settings, b"key")
            for name, work in (("push", _push(frontier, count)), ("lease, settle", _drain(frontier, drain))):
                before = time.process_time()
                costs.steps[name] = await step(pid, work)
                costs.client_us[name] = (time.process_time() - before) / costs.steps[name].urls * 1e6
            costs.largest_key = await _largest_key(store, frontier)
            calls_s = await _move(store, frontier, tempfile.TemporaryDirectory(prefix="bench-"))
            costs.moved_s, costs.longest_move_ms = sum(calls_s), 1000 * max(calls_s)
            left = count - costs.steps["lease, settle"].urls
            weights = [await freed(store, frontier.keys, kind) for kind in ("q:*", "block:*", "blocks:*")]
            costs.memory = sum(weights) / left
            costs.ms = dict(metered.took)
    return costs


async def measure_rounds(count: int, drain: int, pack_above: int, server: Server, rounds: int) -> Costs:
    """As `measure`, but each call of a script with its shortest time in `rounds`."""
    costs = await measure(count, drain, pack_above, server)
    for _ in range(1, rounds):
        again = await measure(count, drain, pack_above, server)
        costs.ms = {
            name: [min(both) for both in zip(took, again.ms[name], strict=True)] for name, took in costs.ms.items()
        }
    return costs


class MeteredStore(CountingStore):
    """Measures the server's CPU time of each script that is sent alone, as all are here. `pid`: of the server."""

    def __init__(self, store: Store, pid: int) -> None:
        super().__init__(store)
        self._time = Path(f"/proc/{pid}/schedstat")
        self.took: dict[str, list[float]] = defaultdict(list)

    def _cpu_ms(self) -> float:
        return int(self._time.read_text().split()[0]) / 1e6

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        before = self._cpu_ms()
        replies = await super().send(calls)
        if len(calls) == 1 and calls[0].script:
            self.took[calls[0].script.name].append(self._cpu_ms() - before)
        return replies


async def _push(frontier: Frontier, count: int) -> AsyncIterator[int]:
    new = entries(count)
    while batch := list(islice(new, PUSHED_AT_ONCE)):
        await frontier.push(batch)
        yield len(batch)


async def _drain(frontier: Frontier, wanted: int) -> AsyncIterator[int]:
    shard, done = frontier.shard_of(DOMAIN), 0
    while done < wanted:
        (reply,), _ = await frontier.lease([shard], 1, "bench", 1)
        for lease in reply.leases:
            ends = [SettledUrl(entry, "done", "200") for entry in lease.entries]
            await frontier.settle([Settlement(lease, next_ms=0, urls=ends)])
            done += len(ends)
            yield len(ends)


async def _move(store: RedisStore, frontier: Frontier, folder: tempfile.TemporaryDirectory[str]) -> list[float]:
    """Copy the keys of the domain's shard to another server, and return the seconds of each call; infinite if a key takes
    longer than `MOVE_LIMIT_MS`."""
    port, of, cursor, took = free_port(), frontier.keys.shards[frontier.shard_of(DOMAIN)], b"0", []
    with folder as path, ValkeyProcess(Path(path), persistent=False, options=("--port", str(port))):
        while True:
            ((cursor, found),) = await store.send([command("SCAN", cursor, "MATCH", f"{of.base}*", "COUNT", 1_000)])
            for at in range(0, len(found), MOVED_AT_ONCE):
                keys, before = found[at : at + MOVED_AT_ONCE], time.monotonic()
                where = ("127.0.0.1", port, "", 0, MOVE_LIMIT_MS, "COPY", "REPLACE", "KEYS")
                try:
                    await store.send([command("MIGRATE", *where, *keys)])
                except RedisMisused:  # the other server took too long
                    return [math.inf]
                took.append(time.monotonic() - before)
            if cursor == b"0":
                return took


async def _largest_key(store: RedisStore, frontier: Frontier) -> int:
    """Bytes of the queue, or of the index of its blocks."""
    of = frontier.keys.shards[frontier.shard_of(DOMAIN)]
    names = (of.queue(DOMAIN), of.blocks(DOMAIN))
    sizes = await store.send([command("MEMORY", "USAGE", name, "SAMPLES", 0) for name in names])
    return max(size or 0 for size in sizes)


def show(costs: Costs, name: str, heading: bool) -> None:
    steps = tuple(costs.steps)
    if heading:
        print(
            f"{'':>10} {'':>9} {'bytes':>6} {'largest':>8}  {'server us':^20} {'client us':^20}  ms: median and longest"
        )
        print(f"{'URLs':>10} {'':>9} {'a URL':>6} {'key, kB':>8}  " + " ".join(f"{one:>9.9}" for one in 2 * steps))
    print(f"{costs.urls:10,} {name:>9} {costs.memory:6.1f} {costs.largest_key / 1000:8,.0f}  ", end="")
    print(" ".join(f"{costs.steps[one].server_us:9.1f}" for one in steps), end=" ")
    print(" ".join(f"{costs.client_us[one]:9.1f}" for one in steps), end="   ")
    print(", ".join(f"{one} {statistics.median(took):.1f} {max(took):.1f}" for one, took in costs.ms.items()), end=", ")
    print(f"move: {costs.moved_s:.1f} s, longest call {costs.longest_move_ms:,.0f} ms", flush=True)


def short() -> list[Figure]:
    """For the table of all benchmarks: 100,000 URLs."""
    figures = []
    for name, pack_above in (("packed", PACK_ABOVE), ("unpacked", 0)):
        costs = asyncio.run(measure_rounds(100_000, 20_000, pack_above, Server(options=AS_DEPLOYED), 2))
        is_packed = pack_above > 0
        aim = f"<= {LIMIT_BYTES}" if is_packed else ""
        what = f"one domain, {name}: memory a queued URL"
        figures.append(
            Figure("long_queue", what, costs.memory, "bytes", aim, not is_packed or costs.memory <= LIMIT_BYTES)
        )
        for one, cost in costs.steps.items():
            figures.append(Figure("long_queue", f"{name}: server's CPU a URL, {one}", cost.server_us, "us"))
        longest = max(map(max, costs.ms.values()))
        aim = f"<= {LIMIT_MS}"
        figures.append(Figure("long_queue", f"{name}: longest script", longest, "ms", aim, longest <= LIMIT_MS))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--drain", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--server", type=Path)
    options = parser.parse_args()
    for number, count in enumerate(options.urls):
        for name, pack_above in (("packed", PACK_ABOVE), ("unpacked", 0)):
            server = Server(options.server, AS_DEPLOYED)
            costs = asyncio.run(measure_rounds(count, options.drain, pack_above, server, options.rounds))
            show(costs, name, heading=not number and name == "packed")


if __name__ == "__main__":
    main()
