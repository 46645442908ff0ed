"""Periodic duties: one replica reads the seed file, new lines are queued, and a sitemap is fetched again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crawler.app.engine import PeriodicSeeding
from crawler.errors import UserError
from crawler.settings.load import load
from crawler.settings.tables import ScheduleTable
from frontier.clock import ServerClock
from frontier.counters import Counters
from frontier.peers import CLAIM_MS, Duties
from frontier.queue import Frontier
from frontier.store import RedisStore
from frontier.urls import UrlRules
from tests.frontier.helpers import ManualTime, lease_one, make_frontier, settle_all
from tests.worker.helpers import runtime

HOUR_MS = 3_600_000


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(ms=HOUR_MS * 1000)


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time)


@pytest.fixture
async def replica(
    store: RedisStore, frontier: Frontier, time: ManualTime, crawl_name: str
) -> Callable[[str], PeriodicSeeding]:
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()

    def make(name: str) -> PeriodicSeeding:
        duties = Duties(store, frontier.keys.duties, clock, name)
        return PeriodicSeeding(runtime(time, clock), duties, frontier.push, UrlRules())

    return make


async def test_one_replica_reads_the_file_and_queues_new_lines(
    replica: Callable[[str], PeriodicSeeding], store: RedisStore, frontier: Frontier, time: ManualTime, tmp_path: Path
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("https://a.test/\nnot a url\nhttps://b.test/ priority=5\n")
    duty = ScheduleTable(every="1h", seeds=str(seeds))
    one, two = replica("one"), replica("two")
    assert [await one.run_if_due(duty), await two.run_if_due(duty), await one.run_if_due(duty)] == [True, False, False]
    assert (await Counters(store, frontier.keys).counts()).accepted == 2
    seeds.write_text("https://a.test/\nhttps://c.test/\n")
    time.ms += HOUR_MS
    assert [await two.run_if_due(duty), await one.run_if_due(duty)] == [True, False]
    assert (await Counters(store, frontier.keys).counts()).accepted == 3


async def test_a_replica_without_the_file_leaves_the_duty_to_another(
    replica: Callable[[str], PeriodicSeeding], time: ManualTime, tmp_path: Path
) -> None:
    duty = ScheduleTable(every="1h", seeds=str(tmp_path / "seeds.txt"))
    one, two = replica("one"), replica("two")
    assert not await one.run_if_due(duty)
    (tmp_path / "seeds.txt").write_text("https://a.test/\n")
    time.ms += CLAIM_MS
    assert not await one.run_if_due(duty)
    assert await two.run_if_due(duty)


async def test_a_sitemap_is_queued_again_each_time(
    replica: Callable[[str], PeriodicSeeding], store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    duty = ScheduleTable(every="1h", sitemap="https://a.test/sitemap.xml")
    one = replica("one")
    assert await one.run_if_due(duty)
    lease = await lease_one(frontier)
    assert lease.entries[0].url == "https://a.test/sitemap.xml"
    await frontier.settle([settle_all(lease)])
    time.ms += HOUR_MS
    assert await one.run_if_due(duty)
    assert (await Counters(store, frontier.keys).counts()).accepted == 2


@pytest.mark.parametrize(
    "table",
    [
        {"every": "often", "seeds": "x"},
        {"every": "6h"},
        {"every": "6h", "seeds": "x", "sitemap": "y"},
        {"every": "0.1s", "seeds": "x"},
        {"every": "6h", "seed": "x"},
    ],
)
def test_a_malformed_duty_stops_the_start(table: dict[str, str]) -> None:
    with pytest.raises(UserError, match="schedule"):
        load(None, {"schedule": [table]})  # type: ignore[dict-item]


@pytest.mark.parametrize(("every", "seconds"), [("90s", 90), ("1.5m", 90), ("6h", 21_600), ("2d", 172_800)])
def test_intervals_are_read(every: str, seconds: float) -> None:
    settings = load(None, {"schedule": [{"every": every, "seeds": "x"}]})  # type: ignore[dict-item]
    assert settings.crawl.schedule[0].every_s == seconds
