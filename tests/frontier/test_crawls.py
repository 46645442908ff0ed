"""The types of fields on a real server: the first one counts, for all replicas."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from frontier.clock import ServerClock
from frontier.crawls import LONGEST_FIELD, MOST_FIELDS, FieldTypes, compare_suffix_list, create_crawl, open_crawl
from frontier.dead_letters import DeadLetters
from frontier.entries import Entry, tag_of
from frontier.keys import CrawlKeys
from frontier.known_pages import refresh_domain
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import Ended, Repair
from frontier.reshard import Reshard
from frontier.scripts import command
from frontier.settle import KEEP, Lease, SettledUrl, Settlement, postpone, retry, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, ask, make_frontier, reshard_crawl


@pytest.fixture
def keys(crawl_name: str) -> CrawlKeys:
    return CrawlKeys(crawl_name, 1)


async def test_the_first_type_counts_and_whole_numbers_become_decimal_ones(store: RedisStore, keys: CrawlKeys) -> None:
    one, other = FieldTypes(store, keys), FieldTypes(store, keys)
    name, price, odd = ("shop", "name"), ("shop", "price"), ("shop", "with\nline: end")
    assert await one.keep({name: "text", price: "int", odd: "bool"}) == {name: "text", price: "int", odd: "bool"}
    assert await other.keep({name: "int", price: "float"}) == {name: "text", price: "float"}
    assert await one.keep({price: "int", ("other", "price"): "text"}) == {price: "float", ("other", "price"): "text"}
    kept = {name: "text", price: "float", odd: "bool", ("other", "price"): "text"}
    assert await other.read() == kept
    assert await other.keep(kept) == kept
    assert await one.forget("shop") == 3
    assert await other.read() == {("other", "price"): "text"}


async def test_the_number_of_fields_is_limited(store: RedisStore, keys: CrawlKeys) -> None:
    types = FieldTypes(store, keys)
    many = {("words", str(number)): "int" for number in range(MOST_FIELDS + 10)}
    assert len(await types.keep(many)) == MOST_FIELDS
    assert await types.keep({("words", "0"): "float", ("shop", "new"): "int"}) == {("words", "0"): "float"}
    assert await types.keep({("shop", "x" * (LONGEST_FIELD + 1)): "int"}) == {}
    assert await ask(store, "HLEN", keys.types) == MOST_FIELDS


async def test_nothing_to_keep_costs_no_call(store: RedisStore, keys: CrawlKeys) -> None:
    counting = CountingStore(store)
    assert await FieldTypes(counting, keys).keep({}) == {}
    assert not counting.calls


async def test_a_replica_with_another_list_of_public_suffixes_is_noticed(
    store: RedisStore, crawl_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl = await create_crawl(store, crawl_name, 1, b"{}")
    assert [await compare_suffix_list(store, crawl) for _ in range(2)] == ["", ""]
    file = tmp_path / "list.dat"
    file.write_text("// VERSION: 2026-11-01_UTC\ncom\n// ===BEGIN PRIVATE DOMAINS===\n")
    monkeypatch.setenv("PEERCRAWL_SUFFIX_LIST", str(file))
    warning = await compare_suffix_list(store, crawl)
    assert f"is 2026-11-01_UTC from {file}, and another replica" in warning
    assert ", bundled: " in warning
    assert await compare_suffix_list(store, crawl) == ""


# A URL keeps its label and payload on each way on which it comes back to a queue.


TAGGED = Entry("https://a.test/1", "a.test", tag=tag_of("product", {"shop": 7, "text": "a b"}))
LATER_MS = 100_000
SETTINGS = FrontierSettings(known_share=0.5, delay_ms=1, batch=1)


class Scene:
    """A URL that is leased, and what may happen to it."""

    def __init__(self, store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
        self.store, self.frontier, self.time = store, frontier, time

    async def clock(self) -> ServerClock:
        clock = ServerClock(self.time, self.time.read_ms)
        await clock.refresh()
        return clock

    async def lease(self) -> Lease:
        shards = range(len(self.frontier.keys.shards))
        leased, _ = await self.frontier.lease(shards, 1, "r1", 1)
        return next(lease for reply in leased for lease in reply.leases)

    async def settle(self, settled: Callable[[Entry], SettledUrl]) -> None:
        lease = await self.lease()
        await self.frontier.settle([Settlement(lease, 0, urls=[settled(lease.entries[0])])])
        self.time.ms += LATER_MS

    async def requeue(self) -> None:
        letters = DeadLetters(self.store, self.frontier.keys)
        assert await letters.requeue([letter async for letter in letters.find()], self.time.ms) == 1

    async def reshard(self) -> None:
        crawl = await open_crawl(self.store, self.frontier.keys.crawl, for_reshard=True)
        await reshard_crawl(Reshard(self.store, crawl, (self.time, await self.clock()), 3, 1), crawl, lambda *_: None)
        self.frontier = await make_frontier(self.store, crawl.name, self.time, SETTINGS)


async def released(scene: Scene) -> None:
    await scene.frontier.release([Settlement(await scene.lease(), 0)])


async def taken_back(scene: Scene) -> None:
    await scene.lease()
    scene.time.ms += LATER_MS


async def retried(scene: Scene) -> None:
    await scene.settle(lambda entry: retry(entry, "timeout", scene.time.ms + 1, 0.0))


async def postponed(scene: Scene) -> None:
    await scene.settle(lambda entry: postpone(entry, "robots_unreachable", scene.time.ms + 1))


async def given_up(scene: Scene) -> None:
    await scene.settle(lambda entry: SettledUrl(entry, "dead", "timeout"))
    await scene.requeue()


async def denied(scene: Scene) -> None:
    await scene.settle(lambda entry: SettledUrl(entry, "denied", "blocked", KEEP))
    await scene.requeue()


async def visited_again(scene: Scene) -> None:
    await scene.settle(
        lambda entry: with_next_visit(SettledUrl(entry, "done", "200"), "new", scene.time.ms + 1, "57a7e0")
    )


async def refreshed(scene: Scene) -> None:
    far = scene.time.ms + 10**9
    await scene.settle(lambda entry: with_next_visit(SettledUrl(entry, "done", "200"), "new", far, "57a7e0"))
    assert await refresh_domain(scene.store, scene.frontier.keys, "a.test", scene.time.ms) == 1


async def seeded_again_while_known(scene: Scene) -> None:
    far = scene.time.ms + 10**9
    await scene.settle(lambda entry: with_next_visit(SettledUrl(entry, "done", "200"), "new", far, "57a7e0"))
    await scene.frontier.push([Entry(TAGGED.url, TAGGED.domain, mode="again")])


async def resharded(scene: Scene) -> None:
    await scene.reshard()


async def resharded_while_leased(scene: Scene) -> None:
    await scene.lease()
    await scene.reshard()
    scene.time.ms += LATER_MS


async def resharded_while_dead(scene: Scene) -> None:
    await scene.settle(lambda entry: SettledUrl(entry, "dead", "timeout"))
    await scene.reshard()
    await scene.requeue()


async def resharded_while_known(scene: Scene) -> None:
    await scene.settle(
        lambda entry: with_next_visit(SettledUrl(entry, "done", "200"), "new", scene.time.ms + 1, "57a7e0")
    )
    await scene.reshard()


async def kept_for_a_node_that_was_away(scene: Scene) -> None:
    await scene.settle(lambda entry: SettledUrl(entry, "done", "200"))
    other = Entry("https://a.test/2", "a.test", tag=TAGGED.tag)
    await scene.frontier.keep_links({1: [(scene.frontier.shard_of("a.test"), other)]})
    ((link,),) = await scene.frontier.outboxes.read({1: 0}, 10)
    await scene.frontier.push([link.entry])


async def repaired_after_it_was_given_up(scene: Scene) -> None:
    await scene.settle(lambda entry: SettledUrl(entry, "dead", "timeout"))
    await _repair(scene, [Ended(TAGGED, "dead", "timeout")], [])
    await scene.requeue()


async def repaired_while_queued(scene: Scene) -> None:
    await _repair(scene, [], [TAGGED])


async def _repair(scene: Scene, ended: list[Ended], found: list[Entry]) -> None:
    for shard in scene.frontier.keys.shards:
        ((_, keys),) = await scene.store.send([command("SCAN", 0, "MATCH", f"{shard.base}*", "COUNT", 10**6)])
        await scene.store.send([command("DEL", key) for key in keys])
    crawl = await open_crawl(scene.store, scene.frontier.keys.crawl)
    repair = Repair(scene.store, crawl, await scene.clock(), 0)
    assert await repair.begin()
    await repair.restore(ended)
    await repair.push(found)
    await repair.finish()


WAYS: tuple[Callable[[Scene], Awaitable[None]], ...] = (
    released,
    taken_back,
    retried,
    postponed,
    given_up,
    denied,
    visited_again,
    refreshed,
    seeded_again_while_known,
    resharded,
    resharded_while_leased,
    resharded_while_dead,
    resharded_while_known,
    kept_for_a_node_that_was_away,
    repaired_after_it_was_given_up,
    repaired_while_queued,
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_a_url_comes_back_with_its_tag(
    store: RedisStore, crawl_name: str, time: ManualTime, way: Callable[[Scene], Awaitable[None]]
) -> None:
    await create_crawl(store, crawl_name, 2, b"{}")
    frontier = await make_frontier(store, crawl_name, time, SETTINGS)
    await frontier.push([TAGGED])
    scene = Scene(store, frontier, time)
    await way(scene)
    (entry,) = (await scene.lease()).entries
    assert (entry.label, entry.tag) == ("product", TAGGED.tag)
