"""The state of a crawl as screens show it, also while it is given another number of shards."""

from __future__ import annotations

import msgspec

from crawler.observe import summary
from crawler.observe.health import HealthRecord
from crawler.observe.status import (
    MOST_SETS,
    CrawlReader,
    LastRead,
    condition_of,
    failing_in_words,
    items_in_words,
    put_off_in_words,
    rejected_in_words,
    status,
)
from crawler.scope.shapes import COPIES
from crawler.settings.load import CrawlSettings
from frontier.clock import ServerClock, SystemClock
from frontier.crawls import create_crawl, open_crawl
from frontier.entries import Entry
from frontier.errors import RedisAway
from frontier.peers import Health
from frontier.queue import Frontier, FrontierSettings
from frontier.reshard import Reshard
from frontier.scripts import command
from frontier.settle import Counted
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry, make_frontier


async def test_a_reader_says_how_far_it_is_and_then_reads_the_new_shards(store: RedisStore, crawl_name: str) -> None:
    time = ManualTime()
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    crawl = await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await frontier.push([Entry(f"https://d{number}.test/", f"d{number}.test") for number in range(20)])
    reader = CrawlReader(store, crawl.keys)
    assert (await reader.complete()).condition.word == "no replica"

    work = Reshard(store, crawl, (time, clock), 8, 1)

    def ignore(step: str, done: int, total: int) -> None:
        pass

    await work.begin(ignore)
    for frozen in (await reader.complete(), await status(store, await open_crawl(store, crawl_name, for_reshard=True))):
        assert frozen.condition.word == "resharding"
        assert "being resharded from 4 to 8 shards: 0 % copied" in frozen.condition.obstacles[0]
    found = (await reader.complete()).summary
    assert found is not None
    assert (found.shards, found.accepted, found.shards_lost) == (4, 20, 0)

    last_token = await work.copy(ignore)
    await work.switch(last_token)
    await work.open(last_token)
    killed = await status(store, await open_crawl(store, crawl_name))
    assert killed.condition.word == "no replica"
    assert killed.condition.obstacles[-1].startswith("keys of the former 4 shards are being removed")
    await work.clean(last_token, ignore)
    assert not (await status(store, await open_crawl(store, crawl_name))).condition.obstacles
    after = await reader.complete()
    assert after.condition.word == "no replica"
    assert after.summary is not None
    assert (after.summary.shards, after.summary.accepted, after.summary.shards_lost) == (8, 20, 0)


async def test_what_the_last_replica_wrote_is_not_shown_once_none_is_alive(store: RedisStore, crawl_name: str) -> None:
    """It would be the state of some seconds before the end."""
    time = ManualTime()
    clock = ServerClock(time, time.read_ms)
    await clock.refresh()
    crawl = await create_crawl(store, crawl_name, 4, CrawlSettings().to_json())
    await summary.save(store, crawl.keys, await summary.take(store, crawl.keys, int(time.ms), "r1", ()), 60)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    await frontier.push([Entry("https://d.test/", "d.test")])
    found = (await CrawlReader(store, crawl.keys).complete()).summary
    assert found is not None
    assert found.accepted == 1


def test_the_most_frequent_reason_of_each_data_set_is_shown() -> None:
    counted = {"shop:price:type": 3, "shop:price:missing": 2_000, "b::unread": 4}
    assert rejected_in_words(counted) == "shop 2,003 (mostly price missing), b 4 (unread)"
    many = {f"set{number:02}::size": 1 for number in range(MOST_SETS + 2)}
    assert rejected_in_words(many).endswith("set09 1 (size) and 2 more data sets")


def test_a_data_set_that_nothing_was_found_for_is_shown() -> None:
    assert items_in_words({"shop": 1_200, "news": 3}, ["prices", "news"], {}) == "shop 1,200, news 3, prices none"


def test_a_data_set_of_which_all_items_were_rejected_is_told_apart_from_one_without() -> None:
    rejected = {"shop:price:type": 1, "prices:price:type": 2_000, "prices:price:missing": 1, "b::unread": 4}
    said = items_in_words({"shop": 3}, ["prices", "news"], rejected)
    assert said == "shop 3, b none kept, 4 rejected, news none, prices none kept, 2,001 rejected"


def test_a_replica_whose_clock_is_wrong_is_named() -> None:
    record = HealthRecord("r1", "", 1, 2, 4, 0, 0, 0, 0.0, 0.0, redis_away=False, clock_off_s=-3_600.5)
    found = condition_of("run", [record], None, 0)
    assert (found.level, found.obstacles) == (
        "warn",
        ["replica 2: its clock is 3,600 s behind the crawl's: synchronize it with NTP"],
    )


def test_a_node_that_is_away_is_named_with_what_helps() -> None:
    record = HealthRecord("r1", "", 1, 1, 4, 0, 0, 0, 0.0, 0.0, redis_away=False, nodes_away=["b:6379"])
    (obstacle,) = condition_of("run", [record], None, 0).obstacles
    assert obstacle.startswith("replica 1: Redis node b:6379 away; start it again")


def test_a_crawl_in_which_only_blocked_replicas_have_work_is_blocked() -> None:
    full = HealthRecord("r1", "", 1, 1, 4, 3, 0, 0, 0.0, 0.0, redis_away=False, blocked="cannot write output")
    idle = HealthRecord("r2", "", 1, 2, 4, 0, 0, 0, 0.0, 0.0, redis_away=False)
    assert condition_of("run", [full, idle], None, 0).word == "blocked"
    assert condition_of("run", [full, msgspec.structs.replace(idle, domains=1)], None, 0).word == "running"


async def test_domains_that_have_failed_are_named_while_others_work(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime())
    await frontier.push([entry("https://a.test/"), entry("https://b.test/", "b.test")])
    found = await summary.take(store, frontier.keys, 1_000, "r1", ())
    line = summary.DomainLine("b.test", 1, "waiting", 9_000, 1, None, 2, "http_503")
    assert failing_in_words(msgspec.structs.replace(found, domains_due=1, resting=[line])) == [
        "b.test has failed (http_503, 2 in a row), next try in 8 s; if it works again: `crawler retry b.test`"
    ]
    assert failing_in_words(msgspec.structs.replace(found, domains_due=0, resting=[line])) == []


async def test_an_error_of_redis_is_shown_with_its_remedy() -> None:
    async def fails() -> None:
        raise RedisAway("Redis at a:1 cannot serve now: CLUSTERDOWN The cluster is down (no answer from b:1)")

    last = LastRead[None](SystemClock())
    await last.update(fails())
    assert last.error.endswith("(no answer from b:1); start the nodes that are away again; `crawler doctor` names them")


async def test_lost_replicas_are_named_while_a_crawl_goes_on(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime(), shards=4)
    health, keys = Health(store, frontier.keys.peers, ttl_s=60), frontier.keys
    record = HealthRecord("r1", "", 5, 1, 2, 1, 10, 99, 2.5, 50.0, False)
    await health.report("r0", b"", at_ms=1_000)
    await store.send([command("DEL", f"{keys.peers}:health:r0")])
    await health.report("r1", msgspec.json.encode(record), at_ms=2_000)
    condition = (await CrawlReader(store, keys).read()).condition
    assert condition.level == "warn"
    assert (
        "1 replica was lost (killed or cut off, last report at 00:00:01 UTC): r0; others take over the work, or do "
        "so once `crawler run` starts them"
    ) in condition.obstacles
    await health.withdraw("r0")
    assert (await CrawlReader(store, keys).read()).condition.level == "good"


async def test_urls_that_are_in_no_queue_are_named_with_what_helps(store: RedisStore, crawl_name: str) -> None:
    """Given open URLs of one domain, when somebody deletes its queue, then no replica will ever fetch them."""
    frontier = await make_frontier(store, crawl_name, ManualTime(), shards=4)
    await frontier.push([entry("https://a.test/", "a.test")])
    reader = CrawlReader(store, frontier.keys)
    assert (await reader.complete()).condition.word == "no replica"
    base = frontier.keys.shards[frontier.shard_of("a.test")].base
    await store.send([command("DEL", f"{base}due", f"{base}q:a.test")])
    condition = (await reader.complete()).condition
    assert (condition.word, condition.level) == ("data lost", "bad")
    assert condition.obstacles[0].startswith("1 open URL in no queue")
    assert "crawler repair --evicted" in condition.obstacles[0]


def test_shapes_are_named_with_what_was_not_fetched() -> None:
    counts = {"pages:a.test/x": 40, "useless:a.test/x": 30, "denied:a.test/x": 9, f"denied:{COPIES}": 12}
    assert len(Counted(shapes=counts).words().split(" ")) == 2 * len(counts)  # as settle.lua reads them
    words = f"{COPIES}: 12 not fetched; a.test/x: 9 not fetched, after 40 pages, 75% with nothing new"
    assert put_off_in_words(counts) == words
