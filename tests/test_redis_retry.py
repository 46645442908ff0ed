"""Calls to several nodes: one that does not answer holds up nobody else, and is asked again until it does."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from crawler.events import Event, Events, RedisOutageBegan, RedisOutageEnded
from crawler.redis_retry import PATIENCE_S, RedisRetry
from frontier.clock import SystemClock
from frontier.cluster import UNSERVED
from frontier.errors import RedisAway, ShardLost, WritesRefused
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply, command
from frontier.shards import Nodes
from frontier.store import Store, connect
from tests.several_servers import until
from tests.valkey import ValkeyProcess


class TwoNodes:
    """A store with shard 0 on a, shard 1 on b, and the crawl's keys on a. `asked`: the keys that were read. `replies` are
    given to the reads of an identity: None for a node that is away."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.replies: list[bytes | None] = []

    def node_of(self, key: str) -> str:
        return "b" if ":1}" in key else "a"

    def runs(self) -> str:
        return ""

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        (call,) = calls
        self.asked.append(str(call.arguments[1]))
        reply = self.replies.pop(0)
        if reply is None:
            raise RedisAway("no", "b")
        return [reply]


class Fixture:
    def __init__(self, shards: int = 2) -> None:
        events, clock = Events(), SystemClock()
        self.seen: list[Event] = []
        events.subscribe(self.seen.append, RedisOutageBegan, RedisOutageEnded)
        self.store, self.keys = TwoNodes(), CrawlKeys("crawl", shards, "its identity")
        nodes = Nodes(cast(Store, self.store), self.keys)
        self.retry = RedisRetry(clock, events, random.Random(1), nodes=nodes)
        self.hangs = asyncio.Event()

    async def answer(self, shards: Sequence[int]) -> list[int]:
        if 1 in shards:
            await self.hangs.wait()
        return [10 * shard for shard in shards]


@pytest.mark.timed
async def test_a_node_that_hangs_costs_the_others_a_second_once() -> None:
    its = Fixture()
    parts = its.retry.split([0, 1], lambda shard: shard)
    began = time.monotonic()
    first = await its.retry.each(parts, its.answer)
    again = time.monotonic()
    second = await its.retry.each(parts, its.answer)
    assert again - began >= PATIENCE_S
    assert time.monotonic() - again < PATIENCE_S / 2
    for answers in (first, second):
        assert answers["a"] == [0]
        assert isinstance(answers["b"], RedisAway)
    assert (its.retry.away_nodes, its.retry.is_away, its.retry.is_shard_away(0)) == (["b"], False, False)
    with pytest.raises(RedisAway):
        await its.retry.soon(lambda: its.answer([1]), "b")
    assert [type(event) for event in its.seen] == [RedisOutageBegan]


@pytest.mark.parametrize("how", ["each", "soon"])
async def test_a_replica_that_is_stopped_itself_blames_no_node(tmp_path: Path, how: str) -> None:
    """The answers came meanwhile, and are read when it goes on."""
    its = Fixture()
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)

        async def ask(_: Sequence[int]) -> list[bytes]:
            return await store.send([command("PING")])

        asyncio.get_running_loop().call_later(0.0, time.sleep, PATIENCE_S + 0.2)
        if how == "each":
            answers = await its.retry.each(its.retry.split([0, 1], lambda shard: shard), ask)
            assert answers == {"a": [b"PONG"], "b": [b"PONG"]}
        else:
            assert await its.retry.soon(lambda: ask([0]), "a") == [b"PONG"]
        await store.close()
    assert its.seen == []


async def test_a_node_is_asked_until_it_answers() -> None:
    its = Fixture()
    its.retry.failed(RedisAway("no"), "b")
    its.store.replies = [None, None, b"its identity"]
    watching = asyncio.create_task(its.retry.watch())
    await until(lambda: not its.retry.away_nodes)
    watching.cancel()
    assert its.store.asked == [its.keys.shards[1].stats] * 3
    assert [type(event) for event in its.seen] == [RedisOutageBegan, RedisOutageEnded]


async def test_slots_without_a_node_are_away_until_one_serves_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not back each time that nobody is found to ask."""
    its = Fixture()
    monkeypatch.setattr(its.store, "node_of", lambda key: UNSERVED if ":1}" in key else "a")
    its.retry.failed(RedisAway("no node has the slot", UNSERVED), UNSERVED)
    its.store.replies = [None] * 3 + [b"its identity"]
    watching = asyncio.create_task(its.retry.watch())
    await until(lambda: not its.retry.away_nodes)
    watching.cancel()
    assert [type(event) for event in its.seen] == [RedisOutageBegan, RedisOutageEnded]
    assert its.store.asked == [its.keys.shards[1].stats] * 4


async def test_a_node_that_others_replace_is_not_called_back() -> None:
    its = Fixture()
    its.retry.failed(RedisAway("no"), "gone")
    watching = asyncio.create_task(its.retry.watch())
    await until(lambda: not its.retry.away_nodes)
    watching.cancel()
    ended = its.seen[1]
    assert isinstance(ended, RedisOutageEnded)
    assert ended.is_replaced


async def test_a_call_is_repeated_as_soon_as_its_node_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.redis_retry.FIRST_WAIT_S", 3_600.0)
    monkeypatch.setattr("crawler.redis_retry.LONGEST_NODE_WAIT_S", 3_600.0)
    its, is_away = Fixture(), True

    async def answer() -> str:
        if is_away:
            raise RedisAway("no", "b")
        return "answer"

    calling = asyncio.create_task(its.retry.call(answer, "b"))
    await until(lambda: its.retry.away_nodes == ["b"])
    is_away, its.store.replies = False, [b"its identity"]
    watching = asyncio.create_task(its.retry.watch())
    assert await asyncio.wait_for(calling, 10.0) == "answer"
    watching.cancel()


@pytest.mark.parametrize("rounds", range(4))
async def test_a_call_that_is_cancelled_at_the_moment_when_its_node_is_back_ends(rounds: int) -> None:
    """Otherwise a replica that stops at this moment waits for it forever. `rounds`: of the event loop in between."""
    its = Fixture()

    async def answer() -> None:
        raise RedisAway("no", "b")

    calling = asyncio.create_task(its.retry.call(answer, "b"))
    await until(lambda: its.retry.away_nodes == ["b"])
    its.retry.answered("b")
    for _ in range(rounds):
        await asyncio.sleep(0)
    calling.cancel()
    await asyncio.wait([calling], timeout=0.5)
    assert calling.cancelled()


@pytest.mark.parametrize("how", ["call", "each", "back from an outage"])
async def test_a_node_that_has_lost_a_shard_is_away_until_it_is_restored(how: str) -> None:
    its = Fixture()
    is_restored = False

    async def answer(shards: Sequence[int]) -> list[int]:
        if 1 in shards and not is_restored:
            raise ShardLost("crawl", [1])
        return list(shards)

    calling = None
    its.store.replies = [b""]
    if how == "call":
        calling = asyncio.create_task(its.retry.call(lambda: answer([0, 1])))
    elif how == "each":
        answers = await its.retry.each(its.retry.split([0, 1], lambda shard: shard), answer)
        assert answers["a"] == [0]
        assert isinstance(answers["b"], RedisAway)
    else:
        its.retry.failed(RedisAway("no"), "b")
    watching = asyncio.create_task(its.retry.watch())
    its.store.replies += [b"identity:repair", b"identity:repair"]
    await until(lambda: len(its.store.asked) == 2)
    assert (its.retry.incomplete_nodes, its.retry.away_nodes, its.retry.is_away) == (["b"], [], False)
    its.retry.answered("b")  # it answers what needs no shard
    assert its.retry.is_shard_away(1)
    is_restored = True
    its.store.replies += [b"its identity"]
    await until(lambda: not its.retry.is_shard_away(1))
    watching.cancel()
    if calling is not None:
        assert await calling == [0, 1]
    assert its.retry.incomplete_nodes == []
    losses = [event for event in its.seen if isinstance(event, RedisOutageBegan) and event.has_lost]
    assert [event.node for event in losses] == ["b"]
    assert isinstance(its.seen[-1], RedisOutageEnded)


@pytest.mark.parametrize("shards", [1, 2])
async def test_the_loss_of_a_shard_next_to_the_crawls_own_keys_is_raised(shards: int) -> None:
    """So on a single server."""
    its = Fixture(shards)

    async def answer(_: Sequence[int]) -> None:
        raise ShardLost("crawl", [0])

    with pytest.raises(ShardLost):
        await its.retry.call(lambda: answer([0]))
    with pytest.raises(ShardLost):
        await its.retry.each(its.retry.split([0], lambda shard: shard), answer)
    assert its.seen == []


async def test_on_a_single_server_calls_are_repeated() -> None:
    its = Fixture(shards=1)
    tries = 0

    async def answer(shards: Sequence[int]) -> list[int]:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise RedisAway("no", "a")
        return list(shards)

    assert list((await its.retry.each(its.retry.split([0], lambda shard: shard), answer)).values()) == [[0]]
    tries = 0
    assert await its.retry.soon(lambda: answer([0]), "a") == [0]
    assert [type(event) for event in its.seen] == [RedisOutageBegan, RedisOutageEnded] * 2


async def test_a_server_that_refuses_writes_is_away_until_it_takes_one(tmp_path: Path) -> None:
    """Although it answers reads meanwhile, as one does whose memory or disk is full."""
    its = Fixture(shards=1)
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)

        async def ask(*words: str) -> list[Reply]:
            return await store.send([command(*words)])

        await ask("CONFIG", "SET", "maxmemory", "1")
        writing = asyncio.create_task(its.retry.call(lambda: ask("SET", "key", "value")))
        await until(lambda: bool(its.seen))
        for _ in range(3):
            assert await its.retry.call(lambda: ask("GET", "key")) == [None]
        assert its.retry.is_away
        await ask("CONFIG", "SET", "maxmemory", "0")
        assert await writing == [b"OK"]
        await store.close()
    assert [type(event) for event in its.seen] == [RedisOutageBegan, RedisOutageEnded]


async def test_an_outage_ends_with_any_answer_if_the_refused_write_was_given_up() -> None:
    its = Fixture(shards=1)

    async def refused() -> None:
        raise WritesRefused("full", "a")

    async def answered() -> None:
        pass

    writing = asyncio.create_task(its.retry.call(refused))
    await until(lambda: bool(its.seen))
    writing.cancel()
    await asyncio.wait([writing])
    await its.retry.call(answered)
    assert not its.retry.is_away


async def test_a_node_that_refuses_writes_is_asked_to_write() -> None:
    its = Fixture()
    its.retry.failed(WritesRefused("full", "b"), "b")
    its.retry.answered("b")  # a read
    its.store.replies = [b"its identity", None, b"its identity", b"0"]
    watching = asyncio.create_task(its.retry.watch())
    await until(lambda: not its.retry.away_nodes)
    watching.cancel()
    shard = its.keys.shards[1]
    assert its.store.asked == [shard.stats, shard.due] * 2
    assert [type(event) for event in its.seen] == [RedisOutageBegan, RedisOutageEnded]
