"""The interface to Redis: temporary and permanent errors, and recovery from a broken connection."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

import hiredis
import msgspec
import pytest
import redis

from frontier.cluster import read_shards
from frontier.connection import translate
from frontier.errors import BadInput, FrontierError, RedisAway, RedisMisused, WritesRefused, WrongType
from frontier.redis_url import Address, check_url, display_url, read_url, url_to_copy
from frontier.scripts import Call, Reply, Script, command, script_call
from frontier.store import RedisStore, connect, send_in_parts
from tests.frontier.helpers import ManualTime, entry, make_frontier
from tests.valkey import ValkeyProcess


async def test_replies_come_in_order_and_as_redis_sent_them(store: RedisStore, crawl_name: str) -> None:
    key = f"{{{crawl_name}}}:x"
    replies = await store.send([command("HSET", key, "a", 1), command("HGETALL", key), command("GET", key + "y")])
    assert replies == [1, [b"a", b"1"], None]


async def test_a_server_that_is_not_there_is_away(tmp_path: Path) -> None:
    with pytest.raises(RedisAway):
        await connect(f"unix://{tmp_path}/nobody.sock")


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


async def test_a_script_on_a_full_server_says_that_it_is_full(tmp_path: Path) -> None:
    """Scripts that set a domain aside raise errors of others again."""
    with ValkeyProcess(tmp_path, persistent=False) as server:
        store = await connect(server.url)
        frontier = await make_frontier(store, "full", ManualTime())
        await store.send([command("CONFIG", "SET", "maxmemory", "1")])
        with pytest.raises(WritesRefused, match="maxmemory"):
            await frontier.push([entry()])
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
            await store.send_each([command("SET", key, "text"), command("HGET", key)])
        assert not store.is_away(store.node_of(key))

    async def test_a_key_of_a_wrong_type_is_named_and_fails_its_calls_alone(
        self, store: RedisStore, crawl_name: str
    ) -> None:
        queue = f"{{{crawl_name}:3}}:due"
        calls = [command("SET", queue, "x"), command("ZCARD", queue), command("ZCARD", f"{{{crawl_name}:4}}:due")]
        round_trips = store.round_trips
        done, wrong, sound, *others = await store.send_each([*calls, *[command("ZCARD", queue)] * 9])
        assert (done, sound) == (b"OK", 0) and list(map(str, others)) == [str(wrong)] * 9
        assert store.round_trips == round_trips + 2  # one finds out which keys are wrong
        assert isinstance(wrong, WrongType) and queue in str(wrong) and "crawler repair --evicted" in str(wrong)
        assert not store.is_away(store.node_of(queue))

    async def test_a_script_that_fails_blames_only_values(self, store: RedisStore, crawl_name: str) -> None:
        for source, error in {
            "return 'text' + 1": WrongType,
            "return nil .. 'x'": WrongType,
            "return (nil).x": RedisMisused,
        }.items():
            with pytest.raises(FrontierError) as caught:
                await store.send([Call(("EVAL", source, 1, f"{{{crawl_name}:3}}:due"))])
            assert type(caught.value) is error

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


# Whatever a server answers, and whatever happens to a connection, becomes an error of the frontier.


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (hiredis.ReplyError("READONLY You can't write against a read only replica."), WritesRefused),
        (hiredis.ReplyError("CLUSTERDOWN Hash slot not served"), RedisAway),
        (hiredis.ReplyError("MOVED 3999 127.0.0.1:6381"), RedisAway),
        (hiredis.ReplyError("TRYAGAIN Multiple keys request during rehashing of slot"), RedisAway),
        (hiredis.ReplyError("ERR max number of clients reached"), RedisAway),
        (hiredis.ReplyError("BUSY Redis is busy running a script."), RedisAway),
        (hiredis.ReplyError("WRONGPASS invalid username-password pair"), RedisMisused),
        (hiredis.ReplyError("WRONGTYPE Operation against a key"), WrongType),
        (hiredis.ReplyError("ERR unknown command"), RedisMisused),
        (hiredis.ProtocolError("Protocol error, got 'H'"), RedisAway),
        (ConnectionRefusedError(111, "refused"), RedisAway),
        (TimeoutError(), RedisAway),
        (ConnectionResetError(104, "reset by peer"), RedisAway),
        (EOFError(), RedisAway),
        (asyncio.IncompleteReadError(b"", 5), RedisAway),
        (OSError(113, "no route to host"), RedisAway),
        (ssl.SSLEOFError("EOF occurred in violation of protocol"), RedisAway),
        (hiredis.ReplyError("LOADING Redis is loading the dataset in memory"), RedisAway),
        (hiredis.ReplyError("MASTERDOWN Link with MASTER is down"), RedisAway),
        (hiredis.ReplyError("ASK 3999 127.0.0.1:6381"), RedisAway),
        (hiredis.ReplyError("NOSCRIPT No matching script."), RedisAway),
        (hiredis.ReplyError("NOREPLICAS Not enough good replicas to write."), WritesRefused),
        (hiredis.ReplyError("OOM command not allowed when used memory > 'maxmemory'."), WritesRefused),
        (hiredis.ReplyError("NOAUTH Authentication required."), RedisMisused),
        (hiredis.ReplyError("NOPERM this user has no permissions"), RedisMisused),
        (hiredis.ReplyError("CROSSSLOT Keys in request don't hash to the same slot"), RedisMisused),
        (ssl.SSLCertVerificationError("self-signed certificate"), RedisMisused),
    ],
)
def test_what_passes_by_itself_is_away(error: Exception, meaning: type[FrontierError]) -> None:
    translated = translate(error, "redis://host", "node")
    assert type(translated) is meaning
    if isinstance(translated, RedisAway):
        assert translated.node == "node"


def test_an_error_without_a_text_says_what_happened() -> None:
    assert str(translate(TimeoutError(), "a:1")) == "Redis at a:1 cannot serve now: no answer in time"
    assert str(translate(ConnectionResetError(), "a:1")) == "Redis at a:1 cannot serve now: ConnectionResetError"


def test_an_acl_that_is_too_narrow_is_not_called_a_wrong_password() -> None:
    said = "NOPERM User crawler has no permissions to run the 'evalsha' command"
    assert str(translate(hiredis.ReplyError(said), "a:1")) == (
        f"Redis at a:1 does not permit what the crawler needs; extend its ACL ({said})"
    )
    assert "check user and password" in str(translate(hiredis.ReplyError("NOAUTH Authentication required."), "a:1"))


# Calls in parts: replies are in order, the next part is sent during processing, and an error is raised once.


class Diary:
    """A store that records its calls, returns them as replies, and raises RedisAway for "lost"."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        word = str(calls[0].arguments[0])
        self.notes.append(f"asked {word}")
        await asyncio.sleep(0)
        if word == "lost":
            raise RedisAway(word)
        return [word]

    async def time_ms(self) -> float:
        return 0.0

    async def close(self) -> None:
        pass


async def test_the_replies_come_in_order(store: RedisStore, crawl_name: str) -> None:
    key = f"{{{crawl_name}}}:list"
    parts = [[command("RPUSH", f"{key}:{part}", call) for call in range(part)] for part in (3, 1, 2)]
    looked: list[list[Reply]] = []
    await send_in_parts(store.send, parts, looked.append)
    assert looked == [[1, 2, 3], [1], [1, 2]]
    await send_in_parts(store.send, [], looked.append)
    assert len(looked) == 3


async def test_the_next_part_is_asked_before_one_is_looked_at() -> None:
    diary = Diary()
    parts = [[command(word)] for word in ("a", "b", "c", "d")]
    await send_in_parts(diary.send, parts, lambda replies: diary.notes.append(f"looked at {replies[0]}"))
    assert diary.notes.index("asked b") < diary.notes.index("looked at a")
    assert diary.notes.index("asked c") > diary.notes.index("looked at a")  # and no more than that
    assert [note for note in diary.notes if note.startswith("looked")] == [f"looked at {word}" for word in "abcd"]


async def test_a_store_that_is_away_is_told_once_and_nothing_goes_on() -> None:
    diary = Diary()
    looked: list[Reply] = []
    with pytest.raises(RedisAway, match="lost"):
        await send_in_parts(diary.send, [[command(word)] for word in ("a", "lost", "lost", "d")], looked.extend)
    assert looked == ["a"]
    assert "asked d" not in diary.notes
    assert len(asyncio.all_tasks()) == 1


async def test_a_reader_that_fails_leaves_nothing_under_way() -> None:
    diary = Diary()

    def look(replies: list[Reply]) -> None:
        raise ValueError(replies)

    with pytest.raises(ValueError, match="a"):
        await send_in_parts(diary.send, [[command(word)] for word in ("a", "b", "c")], look)
    assert "asked c" not in diary.notes
    assert len(asyncio.all_tasks()) == 1


# The forms of a Redis URL, and what of it is shown.


def test_a_cluster_has_several_seed_hosts() -> None:
    read = read_url("redis+cluster://user:se%2Ccret@10.0.0.1:7000,[::1]:7001,host")
    assert (read.kind, read.hosts) == (
        "cluster",
        (Address("10.0.0.1", 7000), Address("::1", 7001), Address("host", 6379)),
    )
    assert (read.access.username, read.access.password) == ("user", "se,cret")


def test_valkey_means_redis() -> None:
    assert read_url("valkey://:s@one/3") == read_url("redis://:s@one/3")
    assert read_url("valkeys://one").access.tls is not None
    assert read_url("valkey+cluster://one,two").kind == "cluster"
    assert display_url("valkeys://:s@one/3") == "valkeys://one/3"


@pytest.mark.parametrize(
    "option",
    ["password_file={}", pytest.param("password_command=sh+-c+%27sleep+1.5;cat+{}%27", marks=pytest.mark.long)],
)
async def test_a_password_that_changes_is_read_for_each_connection(tmp_path: Path, option: str) -> None:
    """A command may take longer than a connection to a server that is away."""
    file = tmp_path / "password"
    file.write_text("first\n")
    with ValkeyProcess(tmp_path, persistent=False) as server:
        before = await connect(server.url)
        await before.send([command("CONFIG", "SET", "requirepass", "first")])
        url = f"{server.url}?{option.format(file)}"
        assert "COMMAND" in url_to_copy(url) or str(file) in url_to_copy(url)
        store = await connect(url)
        await store.send([command("PING")])
        await before.send(
            [command("CONFIG", "SET", "requirepass", "second"), command("CLIENT", "KILL", "SKIPME", "yes")]
        )
        file.write_text("second\n")
        deadline = time.monotonic() + 40
        while True:
            try:
                assert await store.send([command("PING")]) == [b"PONG"]
                break
            except (RedisAway, RedisMisused):
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)
        await store.close()
        await before.close()


async def test_a_connection_that_the_server_has_closed_while_idle_is_not_used(tmp_path: Path) -> None:
    """Given a server with a `timeout`, and a process whose event loop stands still for longer than that."""
    with ValkeyProcess(tmp_path, persistent=False) as server, redis.Redis(unix_socket_path=str(server.socket)) as admin:
        store = await connect(server.url)
        assert await store.send([command("PING")]) == [b"PONG"]
        assert admin.client_kill_filter(skipme=True) == 1  # while the event loop stands still
        assert await store.send([command("PING")]) == [b"PONG"]
        await store.close()


async def test_a_command_that_prints_no_password_is_named_without_what_it_printed(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path, persistent=False) as server,
        pytest.raises(RedisAway, match="password_command") as raised,
    ):
        await connect(f"{server.url}?password_command=sh+-c+%27echo+s3cr3t;exit+3%27")
    assert "s3cr3t" not in str(raised.value)


def test_sentinels_name_a_master_and_have_their_own_password() -> None:
    read = read_url("redis+sentinel://:secret@one,two:26380/mymaster/2?sentinel_password=other")
    assert (read.kind, read.hosts) == ("sentinel", (Address("one", 26379), Address("two", 26380)))
    assert (read.master, read.access.database, read.access.password) == ("mymaster", 2, "secret")
    assert (read.sentinel_access.password, read.sentinel_access.database) == ("other", 0)
    assert read_url("redis+sentinel://one/mymaster").access.database == 0


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:secret@host?timeot=3", "there is no option 'timeot'"),
        ("redis://host?password-file=pw", r"there is no option 'password-file' \(did you mean password_file\?\)"),
        ("redis://host?password_file=/no/pw", "password_file /no/pw cannot be read: No such file or directory"),
        ("redis+cluster://:secret@host/3", "a cluster has no database 3"),
        ("redis+cluster://host?socket_timeout=secret", "socket_timeout"),
    ],
)
def test_a_mistake_after_the_host_is_named(url: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as refused:
        read_url(url)
    assert "secret" not in str(refused.value)


def test_addresses_can_be_mapped() -> None:
    read = read_url("redis+cluster://proxy:7000?address_map=10.0.0.1:6379=proxy:7000,10.0.0.2:6379=proxy:7001")
    assert read.reachable == {"10.0.0.1:6379": Address("proxy", 7000), "10.0.0.2:6379": Address("proxy", 7001)}


def test_limits_and_options_are_those_of_redis_py() -> None:
    read = read_url("rediss://host/3?socket_timeout=2.5&socket_connect_timeout=1&client_name=crawl&ssl_cert_reqs=none")
    assert (read.timeout_s, read.connect_timeout_s) == (2.5, 1.0)
    assert (read.access.database, read.access.client_name) == (3, "crawl")
    assert read.access.tls is not None
    assert (read_url("redis://host").timeout_s, read_url("redis://host").access.tls) == (None, None)


@pytest.mark.parametrize(
    "url",
    [
        *("redis://one,two", "redis+sentinel://one", "redis+sentinel://one/", "redis+sentinel://user:1/secret@host"),
        *("redis+cluster://one,", "redis+cluster://one:0", "redis+cluster://a:secret@one:x,two", "redis+raft://one"),
    ],
)
def test_a_url_of_no_known_form_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_url(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("mapped", ["10.0.0.1", "10.0.0.1:1=", "=proxy:1", "a:1=b:secret"])
def test_an_address_map_that_is_none_is_refused(mapped: str) -> None:
    with pytest.raises(BadInput):
        read_url(f"redis+cluster://one?address_map={mapped}")


@pytest.mark.parametrize(
    ("url", "copied"),
    [
        ("redis://host:1/2", "redis://host:1/2"),
        ("rediss://me:secret@host?ssl_ca_certs=/ca.pem&db=2", "rediss://USER:PASSWORD@host?ssl_ca_certs=/ca.pem&db=2"),
        (
            "redis+sentinel://:secret@one,two/name?sentinel_password=secret&sentinel_username=secret&socket_timeout=2",
            "redis+sentinel://USER:PASSWORD@one,two/name?sentinel_password=PASSWORD&sentinel_username=USER&socket_timeout=2",
        ),
        ("rediss://host?ssl_keyfile=/k&ssl_password=secret", "rediss://host?ssl_keyfile=/k&ssl_password=PASSWORD"),
        ("unix:///run/s?pass%77ord=secret&pasword=secret&secret", "unix:///run/s?password=PASSWORD"),
        ("redis://me:sec/ret@host", "(malformed URL)"),
    ],
)
def test_a_url_to_copy_has_all_options_but_no_secret(url: str, copied: str) -> None:
    assert url_to_copy(url) == copied


# Reads what the nodes of a cluster say about each other.


ASKED = Address("10.0.0.1", 7000)
SHARDS = [
    [b"slots", [0, 16383], b"nodes", [[b"port", 7000, b"tls-port", 7443, b"endpoint", b"", b"health", b"online"]]],
    [b"slots", [], b"nodes", [[b"port", 7001, b"endpoint", b"redis-1", b"health", b"fail"]]],
    [b"slots", [], b"nodes", [[b"tls-port", 7444, b"endpoint", None, b"health", b"loading"]]],
]


@pytest.mark.parametrize(
    ("has_tls", "nodes"),
    [
        (False, (Address("10.0.0.1", 7000), Address("redis-1", 7001))),
        (True, (Address("10.0.0.1", 7443), Address("10.0.0.1", 7444))),
    ],
)
def test_shards_name_all_nodes_that_can_be_reached(has_tls: bool, nodes: tuple[Address, ...]) -> None:
    """A node that does not tell its own address is the one that was asked."""
    assert read_shards(SHARDS, ASKED, has_tls) == nodes
