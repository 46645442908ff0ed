"""A Redis that refuses writes or evicts keys: every screen says so, and what helps."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from crawler.errors import UserError
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.errors import RedisAway
from frontier.scripts import command
from frontier.store import RedisStore
from tests.cli.conftest import Hand
from tests.typed import Typed
from tests.valkey import ValkeyProcess

REPLICA = b'{"replica":"r1","address":"","epoch":1,"index":1,"shards":1,"domains":0,"pages":0,"received_bytes":0,' + (
    b'"pages_per_s":0,"rss_mb":0,"redis_away":false}'
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ValkeyProcess]:
    folder = tmp_path / "valkey"
    folder.mkdir()
    with ValkeyProcess(folder, persistent=False) as process:
        yield process


@pytest.fixture
def admin(server: ValkeyProcess) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        yield client


@pytest.fixture
def crawl(server: ValkeyProcess) -> Hand:
    made = Hand(server.url, "news")
    made.type("seed", "https://a.test/1", "https://a.test/2", "https://b.test/")
    return made


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        ("maxmemory", "1000000", "give it more memory (maxmemory)"),
        ("min-replicas-to-write", "1", "start its replicas, or lower min-replicas-to-write"),
    ],
)
def test_that_redis_refuses_writes_is_said_by_all(
    crawl: Hand, typed: Typed, admin: redis.Redis, setting: str, value: str, remedy: str
) -> None:
    """Replicas cannot report then, so that nothing may be concluded from their silence."""
    keys = f"{{{crawl.crawl}}}:peers:health"
    admin.zadd(keys, {"r0": 0})  # a replica whose record has expired: to remove it would be a write
    admin.config_set(setting, value)
    for words in (("status",), ("top", "--once")):
        shown = " ".join(crawl.type(*words).split())
        assert "Redis refuses writes" in shown
        assert remedy in shown
        assert "no replica runs" not in shown
    assert crawl.json("status")["condition"]["level"] == "bad"
    doctor = typed("doctor", "--json", "--redis", crawl.url)
    assert {one["check"]: one["result"] for one in json.loads(doctor.out)}["Redis writes"] == "bad"
    told = typed("pause", "--crawl", crawl.crawl, "--redis", crawl.url)
    assert remedy in told.err
    assert "check that it is running" not in told.err


def test_a_read_of_a_blocked_server_says_what_blocks_it(
    typed: Typed, admin: redis.Redis, server: ValkeyProcess
) -> None:
    from crawler.cli.main import _advice

    for said, remedy in (("BUSY Redis is busy running a script.", "SCRIPT KILL"), ("LOADING it is loading", "wait")):
        error = RedisAway(f"Redis at redis://h cannot serve now: {said}")
        assert remedy in _advice(error)
        assert "check that" not in _advice(error)
    assert "check that it is running" in _advice(RedisAway("Redis at redis://h cannot serve now: [Errno 111] refused"))


def test_each_command_warns_of_a_server_that_may_evict(crawl: Hand, typed: Typed, admin: redis.Redis) -> None:
    admin.config_set("maxmemory-policy", "allkeys-lru")
    place = ("--crawl", crawl.crawl, "--redis", crawl.url)
    for words in (("seed", "https://c.test/"), ("pause",), ("block", "a.test"), ("repair", "--accept-loss")):
        assert "CONFIG SET maxmemory-policy noeviction" in " ".join(typed(*words, *place).err.split()), words
    condition = crawl.json("status")["condition"]
    assert "Redis may evict keys (maxmemory-policy allkeys-lru)" in condition["obstacles"][0]


def test_a_crawl_whose_record_was_evicted_is_not_only_called_unknown(
    crawl: Hand, typed: Typed, admin: redis.Redis
) -> None:
    admin.config_set("maxmemory-policy", "allkeys-random")
    admin.config_set("maxmemory-eviction-tenacity", 100)  # or a write is let through while eviction goes on
    admin.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        admin.set("x", "y")  # after all keys were evicted
    told = typed("status", "--crawl", crawl.crawl, "--redis", crawl.url)
    assert "no crawl named" in told.err
    assert "Redis has evicted" in told.err
    assert "noeviction, then `crawler repair --evicted`; if there was none, to create it:" in " ".join(told.err.split())


def test_evicted_keys_are_named_and_restored_from_the_output(
    crawl: Hand, typed: Typed, admin: redis.Redis, tmp_path: Path
) -> None:
    """Single keys are gone from shards that are there, so no shard counts as lost, and the crawl would never end. The loss
    is named until it is restored, also if the server evicts nothing any more, or was restarted."""
    line = {"domain": "a.test", "outcome": "done", "reason": "ok", "depth": 0, "replica": "r1", "status": 200}
    (tmp_path / "a.pages.jsonl").write_text(
        json.dumps({**line, "url": "https://a.test/1", "links": ["https://a.test/3"]}) + "\n"
    )
    seeds = ("https://a.test/1", "https://a.test/2", "https://b.test/")

    async def evict(store: RedisStore, opened: Crawl) -> None:
        keys = opened.keys.shards[shard_of("a.test", opened.shards)]
        await store.send([command("DEL", keys.queue("a.test"))])

    async def queued(store: RedisStore, opened: Crawl) -> list[int]:
        keys = opened.keys
        return await store.send([command("ZCARD", keys.of(name).queue(name)) for name in ("a.test", "b.test")])

    crawl.with_store(evict)
    assert crawl.json("repair", "--archive", str(tmp_path), *seeds)["shards"] == []
    assert crawl.with_store(queued) == [0, 1]
    assert crawl.json("status")["condition"]["level"] != "bad"
    admin.set("of somebody else", "x" * 100_000)
    admin.config_set("maxmemory-policy", "volatile-lru")
    admin.expire("of somebody else", 10_000)
    admin.config_set("maxmemory", admin.info("memory")["used_memory"] - 50_000)
    for _ in range(100):
        if admin.info("stats")["evicted_keys"]:
            break
        with contextlib.suppress(redis.exceptions.OutOfMemoryError):
            admin.set("x", "y", ex=100)
    admin.config_set("maxmemory", 0)
    admin.config_set("maxmemory-policy", "noeviction")
    for _ in range(2):
        condition = crawl.json("status")["condition"]
        assert condition["level"] == "bad"
        assert "Redis has evicted" in condition["obstacles"][0]
        admin.config_resetstat()  # as a restart does
    keys = f"{{{crawl.crawl}}}:peers:health"
    admin.zadd(keys, {"r1": 0})
    admin.set(f"{keys}:r1", REPLICA)
    with pytest.raises(UserError, match="stop them with `crawler stop` first"):
        crawl.type("repair", "--evicted", "--archive", str(tmp_path), *seeds)
    admin.delete(f"{keys}:r1")
    repaired = crawl.json("repair", "--evicted", "--archive", str(tmp_path), *seeds)
    assert (repaired["restored"], repaired["queued"]) == (1, 3)
    assert crawl.with_store(queued) == [2, 1]
    status = crawl.json("status")
    assert "evicted" not in str(status["condition"])
    assert (status["accepted"], status["done"], status["open"], status["shards_lost"]) == (4, 1, 3, 0)
