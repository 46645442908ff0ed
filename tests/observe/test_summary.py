"""The summary: its content, which replica writes it, and the metrics derived from it."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from crawler.events import Events
from crawler.observe import summary
from crawler.observe.metrics import MetricsCollector, crawl_families, expected_bytes
from crawler.observe.summary import Sample, Summary, SummaryWriter, followed
from crawler.redis_retry import RedisRetry
from frontier.clock import ServerClock
from frontier.counters import Counts
from frontier.peers import Member, View
from frontier.queue import Frontier
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, make_frontier
from tests.metrics_list import OWN, empty_summary


async def settle(frontier: Frontier, shards: int, time: ManualTime, outcome: str = "done", state: str = "") -> None:
    """Lease one domain of each shard as r1 and settle all its URLs."""
    leased, _ = await frontier.lease(range(shards), 1, "r1", 1)
    for lease in (lease for answer in leased for lease in answer.leases):
        urls = [SettledUrl(one, outcome, "x") for one in lease.entries]
        await frontier.settle([Settlement(lease, time.ms + 9_000, 1000, state, urls)])


async def test_a_shard_with_work_that_no_replica_in_the_view_leases_from_is_unowned(
    store: RedisStore, crawl_name: str
) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time, shards=4)
    await frontier.push([entry(f"https://{name}.test/", f"{name}.test") for name in "abcdefghij"])
    await settle(frontier, 4, time)
    mine = await summary.take(store, frontier.keys, time.ms, "r1", {"r1"})
    orphaned = await summary.take(store, frontier.keys, time.ms, "r2", {"r2"})
    assert (mine.shards_unowned, mine.owned) == (0, {"r1": 4})
    assert orphaned.shards_unowned > 0
    assert mine.accepted == 10
    assert mine.done + mine.queued == 10


async def test_an_empty_shard_is_not_reported_as_unowned(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime(), shards=4)
    assert (await summary.take(store, frontier.keys, 1, "r1", {"r1"})).shards_unowned == 0


async def test_domains_are_listed_by_queue_length_and_by_due_time(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://big.test/{n}", "big.test") for n in range(9)])
    time.ms += 5000
    await frontier.push([entry("https://late.test/", "late.test")])
    await frontier.push([entry(f"https://ill.test/{n}", "ill.test") for n in range(50)])
    time.ms += 5000
    taken = await summary.take(store, frontier.keys, time.ms, "r1", {"r1"})
    assert taken.overdue[0].domain == "big.test"
    assert taken.oldest_due_ms == time.ms - 10_000
    assert taken.busiest[0].domain == "ill.test"
    assert taken.resting == []


def test_visits_that_are_due_are_those_queued_and_not_made() -> None:
    found = {"new": 100, "changed": 5, "unchanged": 20, "failed": 1}
    counts = Counts(accepted=140, done=126, later_visits=40, visits=found)
    assert summary.visits_due(counts) == 14
    assert summary.visits_due(Counts(accepted=140, done=139, later_visits=40, visits=found)) == 1  # others were denied
    assert summary.visits_due(Counts(visits=found)) == 0


async def test_only_the_first_replica_writes(
    store: RedisStore, crawl_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And warns of keys that Redis has evicted."""
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    server = ServerClock(time, time.read_ms)
    await server.refresh()
    roster = (Member("r1", 1), Member("r2", 2))
    views = {me: View(7, roster, me) for me in ("r1", "r2")}

    async def keep(me: str) -> Summary | None:
        redis_retry = RedisRetry(time, Events(), random.Random(1))
        writer = SummaryWriter(store, frontier.keys, (OneRound(time), server), redis_retry, lambda: views[me])
        try:
            await writer.run()
        except asyncio.CancelledError:
            return writer.latest
        raise AssertionError

    assert await keep("r2") is None
    assert await summary.load(store, frontier.keys) is None
    await ask(store, "HSET", frontier.keys.meta, "evicted", "0 3", "fingerprint_key", "k")
    with caplog.at_level("WARNING", "crawler"):
        written = await keep("r1")
    assert "redis_has_evicted" in caplog.messages
    assert written is not None
    assert await summary.load(store, frontier.keys) == written


class OneRound:
    """A clock whose first sleep cancels the caller."""

    def __init__(self, time: ManualTime) -> None:
        self.monotonic = time.monotonic

    async def sleep(self, seconds: float) -> None:
        raise asyncio.CancelledError


async def test_rates_are_computed_between_summaries(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time)
    await frontier.push([entry(f"https://a.test/{n}", "a.test") for n in range(8)])
    first = await summary.take(store, frontier.keys, time.ms, "r1", ())
    await settle(frontier, 1, time)
    second = followed(await summary.take(store, frontier.keys, time.ms + 2000, "r1", ()), first)
    assert (second.done, second.samples) == (8, [Sample(time.ms + 2000, 4.0, 0.0, 0)])
    assert followed(first, second) is first  # a clock that went back makes no rate


def test_metrics_of_the_crawl_are_exported_by_the_writer_only() -> None:
    taken = empty_summary(seen=1)
    without, with_summary = (
        {family.name for family in MetricsCollector(lambda: OWN, lambda found=found: found).collect()}  # type: ignore[misc]
        for found in (None, taken)
    )
    assert with_summary - without == {family.name for family in crawl_families(taken)}
    assert expected_bytes(taken) > 0


def test_the_counters_of_prometheus_keep_what_was_queued_again() -> None:
    """They never go down; a drop would count as a restart."""
    taken = empty_summary(accepted=5, denied=1, requeued={"denied": 2, "dead": 1})
    values = {
        (sample.name, sample.labels.get("outcome")): sample.value
        for family in crawl_families(taken)
        for sample in family.samples
    }
    assert values["peercrawl_crawl_urls_accepted_total", None] == 8
    assert values["peercrawl_crawl_urls_settled_total", "denied"] == 3
    assert values["peercrawl_crawl_urls_settled_total", "dead"] == 1


async def test_the_json_of_a_summary_is_flat_and_can_be_read_back(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    frontier = await make_frontier(store, crawl_name, time, shards=4)
    await frontier.push([entry(f"https://{name}.test/", f"{name}.test") for name in "abcdefghij"])
    await settle(frontier, 4, time)
    taken = await summary.take(store, frontier.keys, time.ms, "r1", {"r1"})
    await summary.save(store, frontier.keys, taken, 60)
    assert await summary.load(store, frontier.keys) == taken
    assert taken.open == taken.accepted - taken.done
    assert msgspec.json.decode(msgspec.json.encode(taken)).items() >= {"accepted": 10, "open": taken.open}.items()
