"""Politeness across domains and replicas: the rate of an address, and redirects to other domains."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.e2e.crawl_world import crawl
from tests.e2e.harness import DELAY_S, EVEN
from tests.simweb.features import RobotsKind
from tests.simweb.judge import JudgeLimits
from tests.simweb.server import Record
from tests.simweb.world import World

pytestmark = pytest.mark.e2e

ADDRESSES = ("127.0.0.2", "127.0.0.3")
LATE_S = 0.3


def by_address(records: list[Record]) -> dict[str, list[float]]:
    starts: dict[str, list[float]] = {}
    for record in sorted(records, key=lambda record: record.start):
        starts.setdefault(record.address, []).append(record.start)
    return starts


def most_above_rate(starts: list[float], rate: float) -> float:
    """By how many requests the fullest window exceeds what `rate` alone allows: the burst that was in fact granted."""
    lowest, most = float("inf"), 0.0
    for place, start in enumerate(starts):
        level = place - rate * (start - starts[0])
        lowest = min(lowest, level)
        most = max(most, level - lowest + 1)
    return most


@pytest.mark.timed
@pytest.mark.parametrize("replicas", [2, 4])
async def test_the_domains_of_an_address_share_its_rate_across_replicas(tmp_path: Path, replicas: int) -> None:
    """Given 40 domains at two addresses, each domain allowed 20 requests a second, when several replicas crawl them, then
    no address gets more than its own 40 a second."""
    world = World(3, domains=40, pages=240, features=EVEN)
    rate, burst = 40, 1
    tables = {"politeness": {"address_rate": rate, "address_burst": burst}}
    done = await crawl(tmp_path, world, tables, replicas, ADDRESSES)
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(delay=DELAY_S, address_in_flight=4))
    assert result.ok, str(result)
    for address, starts in by_address(done.records).items():
        # The rate limiter gives slots out; on a busy machine a request that had one leaves some time after it.
        assert most_above_rate(starts, rate) <= burst + rate * LATE_S, address
        assert len(starts) - 1 <= rate * (starts[-1] - starts[0] + LATE_S), address
        # Evenly: intervals blurred into pure chance would have a median of 0.69 / rate, those of bursts one near 0.
        median = sorted(second - first for first, second in pairwise(starts))[len(starts) // 2]
        assert median > 0.5 / rate, address


@pytest.mark.parametrize("kind", [RobotsKind.SHARED, RobotsKind.MOVED])
async def test_a_robots_txt_of_another_domain_is_fetched_at_that_domains_pace(tmp_path: Path, kind: RobotsKind) -> None:
    """Given hosts whose robots.txt redirect to hosts of other domains, when three replicas crawl them, then those domains,
    too, get one request at a time and their delay is respected."""
    features = replace(EVEN, robots={kind: 0.9}, several_hosts=0.4)
    world = World(5, domains=24, pages=120, features=features)
    done = await crawl(tmp_path, world, {}, replicas=3)
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(delay=DELAY_S))
    assert result.ok, str(result)
    assert sum(record.path.startswith("/for/") for record in done.records) >= 20
