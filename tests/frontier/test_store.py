"""The interface to Redis: temporary and permanent errors, and recovery from a broken connection."""

from __future__ import annotations

import asyncio
import gc
import hashlib
from pathlib import Path

import msgspec
import pytest

from frontier.errors import BadInput, RedisAway, RedisMisused
from frontier.redis_url import check_url, display_url
from frontier.scripts import Script, command, script_call
from frontier.store import RedisStore, connect
from tests.valkey import ValkeyProcess


async def test_replies_come_in_order_and_as_redis_sent_them(store: RedisStore, crawl_name: str) -> None:
    key = f"{{{crawl_name}}}:x"
    replies = await store.send([command("HSET", key, "a", 1), command("HGETALL", key), command("GET", key + "y")])
    assert replies == [1, [b"a", b"1"], None]


async def test_a_server_that_is_not_there_is_away(tmp_path: Path) -> None:
    with pytest.raises(RedisAway):
        await connect(f"unix://{tmp_path}/nobody.sock")


@pytest.mark.parametrize("option", ["passwrod=secret", "socket_timeout=secret"])
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_an_unknown_option_of_a_url_is_bad_input(scheme: str, option: str) -> None:
    with pytest.raises(BadInput, match=option.partition("=")[0]) as refused:
        await connect(f"{scheme}://127.0.0.1:9?{option}")
    assert "secret" not in str(refused.value)


async def test_a_url_that_is_none_is_bad_input() -> None:
    with pytest.raises(BadInput, match="redis://USER"):
        await connect("carrier-pigeon://x")


async def test_a_wrong_password_is_told_without_the_password(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False, options=("--requirepass", "right")) as server:
        with pytest.raises(RedisMisused, match="credentials") as caught:
            await connect(f"unix://:wrong@{server.socket}")
        assert "wrong" not in str(caught.value)
        await (await connect(f"unix://:right@{server.socket}")).close()


async def test_a_full_server_is_away_until_it_has_room(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        await store.send([command("CONFIG", "SET", "maxmemory", "1")])
        with pytest.raises(RedisAway, match="maxmemory"):
            await store.send([command("SET", "x", "y")])
        await store.send([command("CONFIG", "SET", "maxmemory", "0")])
        assert await store.send([command("SET", "x", "y")]) == [b"OK"]
        await store.close()


async def test_a_read_only_replica_is_away(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        await store.send([command("REPLICAOF", "127.0.0.1", "1")])
        with pytest.raises(RedisAway):
            await store.send([command("SET", "x", "y")])
        await store.close()


async def test_a_servers_setting_is_told(store: RedisStore) -> None:
    assert await store.setting("maxmemory-policy") == "noeviction"
    assert await store.setting("no-such-setting") is None


async def test_a_setting_that_this_user_may_not_see_is_none(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        await store.send([command("ACL", "SETUSER", "default", "-config")])
        assert await store.setting("maxmemory-policy") is None
        await store.close()


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=True) as server:
        store = await connect(server.url)
        await store.send([command("SET", "x", "kept")])
        server.kill()
        with pytest.raises(RedisAway):
            await store.send([command("GET", "x")])
        server.start()
        with pytest.raises(RedisAway, match="restarted"):
            await store.send([command("GET", "x")])
        assert await store.send([command("GET", "x")]) == [b"kept"]
        await store.close()


class TestNodes:
    async def test_a_single_server_is_the_node_of_every_key(self, store: RedisStore) -> None:
        assert store.node_of("{a}:x") == store.node_of("{b}:y") != ""
        assert not store.is_away(store.node_of("{a}:x"))

    async def test_calls_to_a_server_that_is_away_get_their_error_each(self, tmp_path: Path) -> None:
        with ValkeyProcess(tmp_path, persistent=False) as server:
            store = await connect(server.url)
            node = store.node_of("x")
            assert await store.send_each([command("SET", "x", 1), command("GET", "x")]) == [b"OK", b"1"]
            server.kill()
            replies = await store.send_each([command("SET", "x", 2), command("GET", "x")])
            assert [type(reply) for reply in replies] == [RedisAway, RedisAway]
            assert {reply.node for reply in replies} == {node}
            assert store.is_away(node)
            server.start()
            await store.send_each([command("GET", "x")])
            assert await store.send_each([command("GET", "x")]) == [None]
            assert not store.is_away(node)
            await store.close()

    async def test_a_refused_call_is_no_outage(self, store: RedisStore, crawl_name: str) -> None:
        key = f"{{{crawl_name}}}:x"
        with pytest.raises(RedisMisused):
            await store.send_each([command("SET", key, "text"), command("HGET", key, "field")])
        assert not store.is_away(store.node_of(key))

    async def test_a_run_id_lasts_as_long_as_the_process(self, tmp_path: Path) -> None:
        with ValkeyProcess(tmp_path, persistent=True) as server:
            store = await connect(server.url)
            first = store.run_of("x")
            assert first == (await store.info("server"))["run_id"]
            await store.send([command("SET", "x", 1)])
            assert store.run_of("x") == first
            server.kill()
            server.start()
            while store.run_of("x") == first:
                with pytest.raises(RedisAway):
                    await store.send([command("GET", "x")])
            assert store.run_of("x") == (await store.info("server"))["run_id"]
            await store.close()

    async def test_no_call_reaches_a_run_that_its_sender_had_not_seen(self, tmp_path: Path) -> None:
        """A batch may carry the run ID, or rely on what earlier calls to that run have done."""
        with ValkeyProcess(tmp_path, persistent=False) as server:
            store = await connect(server.url)
            await asyncio.gather(*(store.send([command("GET", "x")]) for _ in range(8)))
            first = store.run_of("x")
            server.kill()
            server.start()
            sent = [store.send_each([command("INCR", "x")]) for _ in range(8)]
            assert all(isinstance(reply, RedisAway) for (reply,) in await asyncio.gather(*sent))
            while store.run_of("x") == first:
                assert isinstance((await store.send_each([command("INCR", "x")]))[0], RedisAway)
            assert await store.send([command("GET", "x")]) == [None]
            await store.close()


async def test_a_silent_server_is_away_after_the_time_limit(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url, timeout_s=0.1)
        helper = await connect(server.url)
        await helper.send([command("CLIENT", "PAUSE", "60000", "WRITE")])
        with pytest.raises(RedisAway):
            await store.send([command("SET", "x", "y")])
        await helper.send([command("CLIENT", "UNPAUSE")])
        assert await store.send([command("GET", "x")]) == [None]
        await store.close()
        await helper.close()


async def test_a_call_whose_caller_has_left_fails_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gc.collect()  # what earlier tests have left may report broken connections of theirs
    caplog.clear()
    with ValkeyProcess(tmp_path, persistent=False) as valkey:
        store = await connect(valkey.url, timeout_s=60)
        call = asyncio.ensure_future(store.send([command("BLPOP", "nothing", 0)]))
        await store.time_ms()  # the call is under way meanwhile
        sending = asyncio.all_tasks() - {asyncio.current_task(), call}
        call.cancel()
        valkey.kill()
        await asyncio.wait([*sending, call])
        del sending
        gc.collect()
        await store.close()
    assert not caplog.records


async def test_a_cancelled_call_leaves_no_reply_for_the_next(store: RedisStore, crawl_name: str) -> None:
    key = f"{{{crawl_name}}}:x"
    for number in range(50):
        call = asyncio.ensure_future(store.send([command("SET", key, number), command("GET", key)]))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await store.send([command("ECHO", "mine")]) == [b"mine"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://user:secret@host:6379/0", "redis://host:6379/0"),
        ("rediss://:secret@host", "rediss://host"),
        ("redis://host:6379?password=secret", "redis://host:6379"),
        ("redis+cluster://user:secret@[::1]:7000", "redis+cluster://[::1]:7000"),
        ("unix://user:secret@/run/valkey.sock?db=1", "unix:///run/valkey.sock"),
        ("s3://key:secret@bucket/pages?token=secret", "s3://bucket/pages"),
        ("a/folder", "a/folder"),
        ("s3://key:secret@bucket:x/pages", "(malformed URL)"),
        ("s3://[secret", "(malformed URL)"),
        ("unix:///run/valkey.sock?password=secret", "unix:///run/valkey.sock"),
        ("redis://host/1", "redis://host/1"),
    ],
)
def test_urls_are_shown_without_credentials(url: str, shown: str) -> None:
    assert display_url(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        *("user:secret@host:6379", "secret@host", "http://user:secret@host", "redis://", "redis://host:99999"),
        *("redis://:se/cret@host:6379", "redis://user:1/secret@host", "redis://user:1?secret@host"),
        *("redis://user:1#secret@host", "redis://host/secret", "unix://?password=secret", "redis://[secret"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(url)
    assert "secret" not in str(refused.value)


async def test_calls_that_make_a_script_known_at_once_are_no_restart(store: RedisStore, crawl_name: str) -> None:
    """A call that was sent before another one made its script known learns afterwards that it was unknown."""
    keys = [f"{{{crawl_name}}}:{name}" for name in "abcdef"]
    for number in range(100):
        unknown = Script("unknown", f"return {number} -- {crawl_name}", b"", 6)
        unknown = msgspec.structs.replace(unknown, sha=hashlib.sha1(unknown.source.encode()).hexdigest().encode())
        calls = [script_call(unknown, keys)]
        replies = await asyncio.gather(*(store.send(calls * count) for count in (1, 200, 1, 400, 1, 800)))
        assert {reply for part in replies for reply in part} == {number}


async def test_the_source_of_a_script_is_sent_once_for_all_calls_of_it(tmp_path: Path) -> None:
    source = "return tonumber(ARGV[1])"
    script = Script("unknown", source, hashlib.sha1(source.encode()).hexdigest().encode(), 1)
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        assert await store.send([script_call(script, ["x"], number) for number in range(50)]) == list(range(50))
        assert (await store.info("commandstats"))["cmdstat_eval"].startswith("calls=1,")
        await store.close()
