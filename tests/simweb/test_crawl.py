"""A naive crawler fetches exactly what is expected: the expectation, the server and the judge agree."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tests.simweb.features import Features, Kind, RobotsKind
from tests.simweb.judge import JudgeLimits, JudgeReport, Policy, expect, judge
from tests.simweb.naive_crawler import Naive
from tests.simweb.server import RequestLog, SimWebServer
from tests.simweb.world import World

MIXED = replace(Features.mixed(), slow_s=0.01)


async def crawled(world: World, policy: Policy) -> JudgeReport:
    """The verdict on a naive crawl from all roots; it does not wait, so its rests are not judged."""
    log = RequestLog()
    async with SimWebServer(world, log) as server:
        naive = Naive(server.listening[0], sitemaps=policy.sitemaps)
        await asyncio.to_thread(naive.crawl, world.seeds())
    result = judge(log.records, expect(world, world.seeds(), policy), JudgeLimits())
    result.unrested.clear()
    result.too_close.clear()
    return result


@pytest.mark.parametrize("seed", range(3))
async def test_naive_crawl_of_the_plain_web_is_perfect(seed: int) -> None:
    result = await crawled(World(seed, 20, 300, Features.plain()), Policy())
    assert result.ok, str(result)


@pytest.mark.parametrize("seed", range(3))
async def test_naive_crawl_of_the_mixed_web_is_perfect(seed: int) -> None:
    result = await crawled(World(seed, 30, 400, MIXED), Policy())
    assert result.ok, str(result)


async def test_sitemaps_lead_to_pages_that_nothing_links_to() -> None:
    features = replace(MIXED, sitemaps=1.0, unlinked=0.2, robots={RobotsKind.FOLDER: 1.0})
    world = World(1, 3, 300, features)
    result = await crawled(world, Policy(sitemaps=True))
    assert result.ok, str(result)
    with_sitemaps = expect(world, world.seeds(), Policy(sitemaps=True)).urls
    assert len(with_sitemaps - expect(world, world.seeds(), Policy(sitemaps=False)).urls) > 20


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.SILENT])
async def test_each_answer_alone_has_the_expected_outcome(kind: Kind) -> None:
    features = replace(Features.plain(), answers={kind: 0.5}, robots={}, slow_s=0.01)
    result = await crawled(World(1, 2, 40, features), Policy())
    assert result.ok, str(result)


@pytest.mark.parametrize("kind", list(RobotsKind))
async def test_each_robots_txt_alone_has_the_expected_outcome(kind: RobotsKind) -> None:
    features = replace(Features.plain(), robots={kind: 1.0}, private=0.3, several_hosts=0.5, slow_s=0.01)
    result = await crawled(World(1, 4, 60, features), Policy())
    assert result.ok, str(result)
