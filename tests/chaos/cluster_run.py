"""A crawl on a Redis Cluster whose nodes are killed, stopped, cut off, moved and changed, while replicas are killed.

    python -m tests.chaos.cluster_run [--seconds 300] [--seed 1] [--mode durable|everysec]

Three masters and three replicas, all real processes, several crawler replicas, and a web whose own log is the arbiter.
Two modes: `durable`, with `appendfsync always` and `frontier.replicas_ack = 1`, and `everysec`, where the replica of a
master that is killed lacks the last second. Prints a table, and what breached a rule; ends with 1 if anything did.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

from frontier.errors import RedisAway
from tests.chaos import command, standstills
from tests.chaos.diary import NodeDiary
from tests.chaos.nodes import PATIENCE_S, GatedCluster, NodeDeeds, domains_by_slot, shards_by_slot
from tests.chaos.plan import NodeOptions, plan_outages
from tests.chaos.replicas import Replicas
from tests.chaos.report import ClusterReport, Observed, feel, report
from tests.e2e.harness import Bench, Web, bench
from tests.killing import find
from tests.simweb.features import Features
from tests.simweb.world import domain_name

CRAWL, SHARDS = "crawl", 64
MASTERS = 3


async def run(options: NodeOptions, folder: Path, end_limit_s: float) -> ClusterReport:
    """A whole run in `folder`. A crawl that has not ended `end_limit_s` after the faults is killed and judged as it is."""
    began = time.monotonic()
    features = replace(Features.plain(), zipf=0.0)
    cluster = GatedCluster(folder / "nodes", options.is_durable)
    diary = NodeDiary(options.lease_s, loses_tails=not options.is_durable)
    with Web(folder, options.seed, options.domains, options.pages, features) as web:
        expected = await asyncio.to_thread(lambda: web.expected)
        async with cluster.running():
            with bench(folder, web, cluster.url) as crawler:
                await asyncio.to_thread(_seed, crawler, options)
                rng = random.Random(options.seed)
                replicas = Replicas(folder=folder, settings=crawler.settings, diary=diary, rng=rng, url=crawler.redis)
                domains = map(domain_name, range(options.domains))
                where = (domains_by_slot(CRAWL, SHARDS, domains), shards_by_slot(CRAWL, SHARDS))
                deeds = NodeDeeds(cluster, diary, random.Random(options.seed + 1), *where)
                observed = await _crawl(options, crawler, replicas, deeds, end_limit_s)
                finished = await asyncio.to_thread(crawler.run, "finish")
                if finished.code:
                    observed = replace(observed, crashed=(*observed.crashed, f"crawler finish: {finished.err}"))
        records = web.records()
        archive = find(crawler.out, expected.urls | expected.denied, options.replica_kills)
        links = {link for line in crawler.lines() for link in line["links"] or ()}
        archived = {line["url"] for line in crawler.lines()}
        return ClusterReport(
            crawl=report(
                records, expected, diary, options.delay_s, replace(observed, seconds=time.monotonic() - began)
            ),
            archive=archive,
            links_missing=tuple(sorted((links & (expected.urls | expected.denied)) - archived)),
            felt=tuple(feel(records, diary)),
            diary=diary,
            mode="durable" if options.is_durable else "everysec",
        )


def _seed(crawler: Bench, options: NodeOptions) -> None:
    crawler.configure(
        {
            # All domains are at one address, whose limit is a key of one node. It shall bind nobody.
            "politeness": {"delay": options.delay_s, "address_rate": 10.0 * options.domains / options.delay_s},
            "scope": {"guess_sitemaps": False},  # the judge expects what the servers name
            "frontier": {"lease": options.lease_s, "replicas_ack": int(options.is_durable)},
            "replica": {"interval": options.interval_s},
        }
    )
    crawler.seed()
    crawler.type("pause")  # until all replicas are there


async def _crawl(
    options: NodeOptions, crawler: Bench, replicas: Replicas, deeds: NodeDeeds, end_limit_s: float
) -> Observed:
    """Crawl under the planned faults, and then to the end in peace."""
    watching = asyncio.create_task(standstills.watch(deeds.diary.stood_still))
    try:
        for _ in range(options.replicas):
            await replicas.add()
        await asyncio.to_thread(crawler.begin, options.replicas)
        await asyncio.to_thread(crawler.web.wait_for, 2 * options.domains)
        outages, moves, kills = (
            asyncio.create_task(_outages(options, deeds)),
            asyncio.create_task(deeds.keep_moving()),
            asyncio.create_task(_kill_replicas(options, replicas)),
        )
        try:
            await asyncio.gather(outages, kills)
        finally:
            moves.cancel()
            await asyncio.gather(moves, return_exceptions=True)
        still_open = await _open_urls(crawler)
        ended = await _wait(replicas, end_limit_s)
    finally:
        watching.cancel()
        await replicas.end()
    endless = () if ended else (f"the crawl had not ended {end_limit_s:.0f} s after the faults",)
    return Observed(replicas.started, (*replicas.crashed, *endless), still_open, 0.0, 0.0)


async def _open_urls(crawler: Bench) -> int:
    """How many URLs are open, as `crawler status` says as soon as it can: on a busy machine, a node may be slow."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return int((await asyncio.to_thread(crawler.status))["open"])
        except RedisAway:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)


async def _wait(replicas: Replicas, limit_s: float) -> bool:
    """Whether all replicas have ended by themselves within `limit_s`."""
    waiting = asyncio.create_task(replicas.wait())
    done, _ = await asyncio.wait([waiting], timeout=limit_s)
    waiting.cancel()
    return bool(done)


async def _outages(options: NodeOptions, deeds: NodeDeeds) -> None:
    began = time.monotonic()
    for planned in plan_outages(options, deeds.rng):
        await asyncio.sleep(max(0.0, began + planned.at - time.monotonic()))
        await deeds.do(planned)


async def _kill_replicas(options: NodeOptions, replicas: Replicas) -> None:
    """Kill replicas at times that are spread evenly, and start another one for each."""
    began = time.monotonic()
    for number in range(options.replica_kills):
        at = (number + replicas.rng.random()) * options.seconds / options.replica_kills
        await asyncio.sleep(max(0.0, began + at - time.monotonic()))
        if member := replicas.pick():
            await replicas.kill(member)
        while len(replicas.members) < options.replicas:
            await replicas.add()


def main(argv: list[str]) -> int:
    """Run as the arguments say; the exit status."""
    parser = command.options("tests.chaos.cluster_run", __doc__)
    parser.add_argument("--mode", choices=["durable", "everysec"], default="durable")
    given = parser.parse_args(argv)
    chosen = NodeOptions.of_length(given.seconds, given.mode == "durable", given.seed, given.replicas)
    return command.run_and_print(lambda folder: run(chosen, folder, end_limit_s=given.seconds + 120), given.keep)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
