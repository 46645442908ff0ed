"""One run: set the scene, carry out the plan, let the crawl end in peace, judge.

The processes of a run: Valkey, and replicas that each reach it through a link of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from crawler.observe.status import Status, status
from frontier.crawls import open_crawl
from frontier.errors import FrontierError
from frontier.store import connect
from tests.chaos.diary import Diary, Kind
from tests.chaos.plan import Options, Planned, plan
from tests.chaos.proxy import Link
from tests.chaos.replicas import ROOT, Member, Replicas
from tests.chaos.report import Observed, Report, report
from tests.e2e.harness import Bench, Web, bench
from tests.simweb.features import Features
from tests.valkey import ValkeyProcess

FEW, MANY = 64, 1_024
"""The numbers of shards between which reshards change. A run begins with few."""

TRIES = 60
"""How often a reshard is tried, which needs Redis to be there for some seconds."""


@dataclass(slots=True, kw_only=True)
class Cluster(Replicas):
    """What may be done to the processes, each deed noted in `diary`."""

    valkey: ValkeyProcess
    _restarting: asyncio.Lock = field(default_factory=asyncio.Lock)
    _resharding: asyncio.Lock = field(default_factory=asyncio.Lock)
    _shards: int = FEW

    async def _own_link(self) -> Link | None:
        link = Link(self.valkey.socket)
        await link.start()
        return link

    async def suspend(self, member: Member, seconds: float) -> None:
        """SIGSTOP for so long, then SIGCONT."""
        member.busy = True
        begin = time.monotonic()
        member.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        member.process.send_signal(signal.SIGCONT)
        self._note(Kind.STOP, member.name, begin)
        member.busy = False

    async def restart_valkey(self, away_s: float) -> None:
        """kill -9 of the server, and a new one on the same append-only file."""
        async with self._restarting:
            begin = time.monotonic()
            self.valkey.kill()
            await asyncio.sleep(away_s)
            await asyncio.to_thread(self.valkey.start)
            self._note(Kind.RESTART, "", begin)

    async def reshard(self, killed_after_s: float) -> None:
        """Give the crawl many shards if it has few, and otherwise few. The command is repeated until it succeeds: Redis may
        be away. `killed_after_s`: when the first one is killed, 0 for never."""
        async with self._resharding:
            self._shards = MANY if self._shards == FEW else FEW
            begin = time.monotonic()
            code, number = await self._reshard(killed_after_s), 1
            while code and not self._has_all():  # it may have been killed when all but the report was done
                assert number < TRIES, f"no reshard to {self._shards} shards, see {self._log('reshard')}"
                await asyncio.sleep(0.5)
                code, number = await self._reshard(0.0), number + 1
            self._note(Kind.RESHARD, "", begin)

    def _has_all(self) -> bool:
        """Whether the last command has said that the crawl has so many shards already."""
        lines = self._log("reshard").read_text().splitlines()
        return bool(lines) and f"the crawl has {self._shards:,} shards already" in lines[-1]

    async def _reshard(self, killed_after_s: float) -> int:
        with self._log("reshard").open("ab") as log:
            words = ("--settings", str(self.settings), "--redis", self.valkey.url, "--shards", str(self._shards))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "crawler", "reshard", *words),
                cwd=ROOT,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        with contextlib.suppress(TimeoutError):
            return await asyncio.wait_for(process.wait(), killed_after_s or None)
        process.kill()
        return await process.wait()

    async def spoil(self, member: Member, kind: Kind, seconds: float) -> None:
        """Do `kind` to the member's link for so long."""
        assert member.link is not None
        member.busy = True
        begin = time.monotonic()
        if kind is Kind.DELAY:
            member.link.delay_s = 0.3
        elif kind is Kind.SWALLOW:
            member.link.swallow(True)
        else:
            member.link.cut_next()
        await asyncio.sleep(seconds)
        member.link.delay_s = 0.0
        member.link.swallow(False)
        self._note(kind, member.name, begin)
        member.busy = False


LEVEL_LIMIT_S = 60.0


async def run(options: Options, folder: Path, end_limit_s: float) -> Report:
    """A whole run in `folder`. Raises AssertionError if the crawl has not ended `end_limit_s` after the faults."""
    began = time.monotonic()
    features = replace(Features.plain(), zipf=options.zipf)
    (folder / "valkey").mkdir()
    with (
        Web(folder, options.seed, options.domains, options.pages, features) as web,
        ValkeyProcess(folder / "valkey", persistent=True) as valkey,
        bench(folder, web, valkey.url) as crawler,
    ):
        await asyncio.to_thread(_seed, crawler, options)
        rng = random.Random(options.seed)
        cluster = Cluster(
            folder=folder, settings=crawler.settings, diary=Diary(options.lease_s), rng=rng, valkey=valkey
        )
        try:
            for _ in range(options.replicas):
                await cluster.add()
            await asyncio.to_thread(crawler.begin, options.replicas)
            await _until_level(cluster, options)
            await _carry_out(plan(options, rng), cluster, options)
            still_open = (await _status(cluster)).open
            level_after_s = await _until_level(cluster, options) if still_open else 0.0
            async with asyncio.timeout(end_limit_s):
                await cluster.wait()
        finally:
            await cluster.end()
        observed = Observed(
            cluster.started, tuple(cluster.crashed), still_open, level_after_s, time.monotonic() - began
        )
        return report(web.records(), web.expected, cluster.diary, options.delay_s, observed)


def _seed(crawler: Bench, options: Options) -> None:
    crawler.configure(
        {
            "politeness": {"delay": options.delay_s},
            "scope": {"guess_sitemaps": False},  # the judge expects what the servers name
            "frontier": {"lease": options.lease_s},
            "replica": {"interval": options.interval_s},
        }
    )
    crawler.seed()
    crawler.type("pause")  # until all replicas are there


async def _carry_out(planned: list[Planned], cluster: Cluster, options: Options) -> None:
    """Each fault at its time; those that last go on beside the next ones. Returns when all are over."""
    began = time.monotonic()
    lasting: set[asyncio.Task[None]] = set()
    for fault in planned:
        await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
        lasting.add(asyncio.create_task(_do(fault, cluster, options)))
    await asyncio.sleep(max(0.0, began + options.seconds - time.monotonic()))
    await asyncio.gather(*lasting)
    while len(cluster.members) < options.replicas:
        await cluster.add()


async def _do(fault: Planned, cluster: Cluster, options: Options) -> None:
    if fault.kind is Kind.RESTART:
        await cluster.restart_valkey(fault.seconds)
        return
    if fault.kind is Kind.RESHARD:
        await cluster.reshard(fault.seconds)
        return
    if fault.kind is Kind.JOIN:
        await cluster.add()
        return
    while (member := cluster.pick()) is None:  # noqa: ASYNC110 - faults let go of replicas without an event
        await asyncio.sleep(0.1)
    if fault.kind is Kind.KILL:
        await cluster.kill(member)
    elif fault.kind is Kind.LEAVE:
        await cluster.remove(member)
    elif fault.kind is Kind.STOP:
        await cluster.suspend(member, fault.seconds)
        return
    else:
        await cluster.spoil(member, fault.kind, fault.seconds)
        return
    if len(cluster.members) < options.replicas:
        await cluster.add()


async def _status(cluster: Cluster) -> Status:
    store = await connect(cluster.valkey.url)
    try:
        return await status(store, await open_crawl(store, "crawl"))
    finally:
        await store.close()


async def _until_level(cluster: Cluster, options: Options) -> float:
    """Seconds from the last change until every replica owns its share of the shards, and no other one any."""
    since = cluster.changed_at
    while time.monotonic() < since + LEVEL_LIMIT_S:
        try:
            found = await _status(cluster)
        except FrontierError:
            continue
        shares = [record.shards for record in found.replicas]
        most = math.ceil(1.1 * found.shards / max(1, len(cluster.members)))
        if len(shares) == len(cluster.members) and sum(shares) == found.shards and max(shares) <= most:
            break
        await asyncio.sleep(0.05)
    return time.monotonic() - since
