"""The node of each shard is read again when the slot map has changed, and only then."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast, get_args

import pytest

from frontier.counters import Counters
from frontier.entries import PushMode
from frontier.errors import RedisAway
from frontier.keys import MOST_SHARDS, CrawlKeys
from frontier.lookup import UrlLookup
from frontier.scripts import Call, Reply, command
from frontier.shards import Nodes
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, ManualTime, entry, make_frontier


class Moving:
    """A cluster in which all shards move to another node. `read`: how often a node was asked for."""

    def __init__(self) -> None:
        self.moves = 0
        self.read = 0

    def node_of(self, key: str) -> str:
        self.read += 1
        return f"node {self.moves}"

    def runs(self) -> int:
        return self.moves


class Apart:
    """A cluster whose node "c" has only the control keys. `sent`: the verbs of the calls."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def node_of(self, key: str) -> str:
        return "a" if ":0}" in key else "c"

    def runs(self) -> int:
        return 0

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.sent += [str(call.arguments[0]) for call in calls]
        return [0] * len(calls)


async def test_a_node_with_only_control_keys_is_asked_to_write() -> None:
    store = Apart()
    nodes = Nodes(cast(Store, store), CrawlKeys("crawl", 1))
    await nodes.check("c")
    await nodes.check("c", writes=True)
    assert store.sent == ["EXISTS", "HDEL"]


def test_the_map_of_all_shards_is_read_once_for_each_change() -> None:
    store = Moving()
    nodes = Nodes(cast(Store, store), CrawlKeys("crawl", MOST_SHARDS))
    for _ in range(3):
        assert nodes.of(MOST_SHARDS - 1) == "node 0"
        assert not nodes.has_many_nodes
    assert store.read == MOST_SHARDS + 1
    store.moves = 1
    assert nodes.names == {"node 1"}
    assert store.read == 2 * (MOST_SHARDS + 1)


# Links in an outbox are open until they were pushed to their own shards.


LINKS = [
    (1, entry("https://b.test/1", "b.test", priority=-2.0, depth=3)),
    (2, entry("https://c.test/1", "c.test", mode="known")),
]


async def test_the_crawl_has_not_ended_while_links_are_kept(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime(), shards=3)
    counters, outboxes = Counters(store, frontier.keys), frontier.outboxes
    # Given links that were put into an outbox, twice because the first reply was lost,
    for _ in range(2):
        assert await outboxes.keep({0: LINKS}) == set()
    # Then they are open, and are what they were.
    assert not await counters.has_ended()
    assert await counters.open() == [2, 0, 0]
    assert (await counters.counts()).outbox == 2
    assert await outboxes.filled([0, 1, 2]) == [0]
    ((first, second),) = await outboxes.read({0: 0}, 10)
    assert [(link.target, link.entry) for link in (first, second)] == LINKS
    assert await outboxes.read({0: 2}, 10) == [[second]]
    # When they are removed, also twice,
    for _ in range(2):
        await outboxes.deliver([first, second])
    # Then nothing is open.
    assert await counters.has_ended()
    assert (await counters.counts()).outbox == 0


@pytest.mark.parametrize("mode", get_args(PushMode))
async def test_a_link_keeps_its_mode(store: RedisStore, crawl_name: str, mode: PushMode) -> None:
    outboxes = (await make_frontier(store, crawl_name, ManualTime(), shards=3)).outboxes
    await outboxes.keep({0: [(1, entry(mode=mode))]})
    (((link,),)) = await outboxes.read({0: 0}, 10)
    assert link.entry == entry(mode=mode)


async def test_a_full_outbox_takes_no_more(store: RedisStore, crawl_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("frontier.outboxes.OUTBOX_LINKS", 2)
    outboxes = (await make_frontier(store, crawl_name, ManualTime(), shards=3)).outboxes
    assert await outboxes.keep({0: LINKS, 1: LINKS[:1]}) == set()
    assert await outboxes.keep({0: [(1, entry())], 1: LINKS[1:]}) == {0}
    assert [len(links) for links in await outboxes.read({0: 0, 1: 0}, 10)] == [2, 2]


class HalfAway(CountingStore):
    """A server that was restarted, with shards that cannot be reached. `away`: one of their keys."""

    run, away = "before", ""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self.away in {call.keys[0] for call in calls if call.keys}:
            raise RedisAway("away")
        return await super().send(calls)

    def node_of(self, key: str) -> str:
        return key

    def is_away(self, node: str) -> bool:
        return self.away != "" and self.away.startswith(node)

    def run_of(self, key: str) -> str:
        return self.run


@pytest.mark.parametrize("is_full", [False, True])
async def test_lost_links_are_put_into_the_outbox_again_while_their_own_shard_is_away(
    store: RedisStore, crawl_name: str, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """Otherwise nodes that are away in turn keep a replica from repeating its writes. If the outbox is full, the links are
    pushed."""
    half = HalfAway(store)
    frontier = await make_frontier(half, crawl_name, ManualTime(), shards=3)
    link = entry("https://b.test/1", "b.test")
    target, keys = frontier.shard_of(link.domain), frontier.keys.shards
    shard = (target + 1) % 3
    # Given a link in an outbox, which the server of the outbox has lost,
    await frontier.keep_links({shard: [(target, link)]})
    await store.send([command("DEL", keys[shard].outbox), command("HDEL", keys[shard].stats, "outboxed")])
    half.run = "after"
    if is_full:
        monkeypatch.setattr("frontier.outboxes.OUTBOX_LINKS", 0)
    else:
        half.away = keys[target].due
    # when the last writes are repeated,
    await frontier.repeat_pushes([shard])
    # then it is in the outbox, or else where it belongs.
    open_urls = await Counters(store, frontier.keys).open()
    assert open_urls == [int(number == (target if is_full else shard)) for number in range(3)]


async def test_why_finds_a_kept_link(store: RedisStore, crawl_name: str) -> None:
    frontier = await make_frontier(store, crawl_name, ManualTime(), shards=3)
    link = entry("https://b.test/1", "b.test")
    await frontier.outboxes.keep({0: [(frontier.shard_of("b.test"), link)]})
    lookup = UrlLookup(store, frontier)
    assert (await lookup.url(link.url, link.domain)).where == "outbox"
    assert (await lookup.url("https://b.test/2", "b.test")).where == "unseen"
