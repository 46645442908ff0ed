"""Several requests to a domain at once: only without a delay, never more than allowed, and none is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.crawl_world import crawl
from tests.e2e.harness import EVEN, Tables, Web, bench
from tests.e2e.victims import kill
from tests.simweb.features import Features, Kind
from tests.simweb.judge import JudgeLimits, judge
from tests.simweb.world import World
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

SLOW: Features = replace(EVEN, answers={Kind.SLOW: 1.0}, slow_s=0.2, robots={})
"""Pages that take 0.2 s, which is enough for a crawler to start every request that it may."""


def in_parallel(parallel: int, delay_s: float = 0.0) -> Tables:
    return {"politeness": {"parallel": parallel, "delay": delay_s}}


@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_domain_without_a_delay_has_its_lanes_and_no_more(tmp_path: Path, parallel: int) -> None:
    """Given slow sites without a delay, when they are crawled with `parallel` requests at once, then each has so many
    requests in flight at once at some time, and never more; with 4, 24 pages of 0.2 s take a quarter of the time."""
    done = await crawl(tmp_path, World(3, domains=2, pages=48, features=SLOW), in_parallel(parallel))
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(in_flight=parallel))
    assert result.ok, str(result)
    assert set(result.peak_by_domain.values()) == {parallel}


async def test_a_domain_with_a_delay_has_one_lane(tmp_path: Path) -> None:
    """The delay wins over `parallel`, and the log says that it has no effect."""
    world = World(3, domains=4, pages=40, features=replace(SLOW, slow_s=0.05))
    done = await crawl(tmp_path, world, in_parallel(4, delay_s=0.05))
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(delay=0.05))
    assert result.ok, str(result)
    assert "politeness.parallel = 4 has no effect" in done.err


def test_kill_in_mid_flight_loses_nothing(tmp_path: Path) -> None:
    """One of two replicas, each with several requests to a domain in flight, is killed. All are fetched again."""
    (tmp_path / "valkey").mkdir()
    tables: Tables = {**in_parallel(4), "frontier": {"lease": 2.0}}
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        Web(tmp_path, seed=3, domains=8, pages=480, features=SLOW) as web,
        bench(tmp_path, web, valkey.url, tables) as crawler,
    ):
        web.stop_at(100)
        first, second = crawler.gather(2)
        with web.stopped():
            victim = kill(first.pid)
        done = second.wait()
        assert done.code == 0, done.err
        repeats = web.repeats()
        assert [record.url for record in repeats if not victim.explains(record)] == []
        result = judge(web.records(), web.expected, JudgeLimits(in_flight=4, repeats=len(repeats)))
        assert result.ok, str(result)
        assert set(result.peak_by_domain.values()) == {4}
