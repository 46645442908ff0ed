"""The embedded store: the first user starts it, others join, the last one stops it, and its data is kept."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import stat
import sys
from pathlib import Path

import pytest

from crawler.app import embedded_valkey
from crawler.app.embedded_valkey import EmbeddedValkey
from crawler.errors import DataDirError
from frontier.errors import RedisAway
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.valkey import ValkeyProcess


async def put(url: str, key: str) -> None:
    store: RedisStore = await connect(url)
    await store.send([command("SET", key, "kept")])
    await store.close()


async def get(url: str, key: str) -> bytes | None:
    store = await connect(url)
    try:
        (value,) = await store.send([command("GET", key)])
    finally:
        await store.close()
    found: bytes | None = value
    return found


async def test_the_last_user_stops_the_server_and_its_data_is_kept(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path / "data") as first:
        await put(first.url, "x")
        async with EmbeddedValkey(tmp_path / "data") as second:
            assert second.url == first.url
            assert await get(second.url, "x") == b"kept"
        assert await get(first.url, "x") == b"kept"
    with pytest.raises(RedisAway):
        await connect(first.url)
    async with EmbeddedValkey(tmp_path / "data") as again:
        assert await get(again.url, "x") == b"kept"


async def test_a_long_path_gets_a_short_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 60) / ("e" * 60)
    async with EmbeddedValkey(deep) as server:
        assert len(str(server.socket)) < 100
        await put(server.url, "x")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("file/data", "--data-dir"),
        ("a\nb", "control characters"),
        ("shared", "other users can change the data directory"),  # and with the settings in it the code that is loaded
    ],
)
async def test_a_folder_that_cannot_be_used_is_refused(tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    with pytest.raises(DataDirError, match=said):
        async with EmbeddedValkey(tmp_path / name):
            pass
    assert not (tmp_path / "a\nb").exists()


async def test_nobody_else_can_use_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_REPLICA__REDIS", "redis://:secret@queue")
    async with EmbeddedValkey(tmp_path / "data") as server:
        assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
        assert b"secret" not in environment_of(server)


@pytest.mark.skipif(os.getuid() != 0, reason="needs the right to give a file away")
async def test_a_server_of_another_user_is_not_used(tmp_path: Path, valkey: ValkeyProcess) -> None:
    """Sockets of long paths are in the temporary folder, where anyone can create one first."""
    await put(valkey.url, "theirs")
    (tmp_path / "data").mkdir()
    theirs = tmp_path / "data" / "valkey.sock"
    theirs.hardlink_to(valkey.socket)
    os.chown(theirs, 65534, 65534)
    try:
        async with EmbeddedValkey(tmp_path / "data") as server:
            assert await get(server.url, "theirs") is None
    finally:
        os.chown(valkey.socket, os.getuid(), os.getgid())


async def test_a_server_that_does_not_start_is_reported_with_its_last_message(tmp_path: Path) -> None:
    """A damaged append-only file: the server refuses it, and the start must fail without waiting for the timeout."""
    async with EmbeddedValkey(tmp_path) as server:
        await put(server.url, "x")
    manifest = next((tmp_path / "appendonlydir").glob("*.manifest"))
    manifest.write_text("nonsense\n")
    with pytest.raises(DataDirError, match="did not start"):
        async with EmbeddedValkey(tmp_path):
            pass


async def test_a_restarted_server_is_used_only_after_it_has_loaded_its_data(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path) as server:
        store = await connect(server.url)
        for _ in range(20):
            await store.send([command("APPEND", "key", "x") for _ in range(10_000)])
        await store.close()
    async with EmbeddedValkey(tmp_path) as server:
        store = await connect(server.url)
        assert await store.send([command("STRLEN", "key")]) == [200_000]
        await store.close()


async def test_a_server_that_ends_before_it_has_a_process_id_file_did_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as one that is killed at once. Whoever waited for it held the lock of all users."""
    monkeypatch.setattr(embedded_valkey, "server_binary", lambda: Path("/bin/true"))
    monkeypatch.setattr(embedded_valkey, "NAMED_WITHIN_S", 0.2)
    with pytest.raises(DataDirError, match="did not start"):
        async with EmbeddedValkey(tmp_path / "data"):
            pass


async def test_who_waits_for_the_lock_of_others_does_not_block_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with (tmp_path / "data" / "start.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), EmbeddedValkey(tmp_path / "data"):
                pass


def pid_of(server: EmbeddedValkey) -> int:
    return int((server.data_dir / "valkey.pid").read_text())


def environment_of(server: EmbeddedValkey) -> bytes:
    return Path(f"/proc/{pid_of(server)}/environ").read_bytes()


def has_ended(pid: int) -> bool:
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie has none
    except OSError:
        return True


async def end_of(pid: int) -> None:
    async with asyncio.timeout(60):
        while not has_ended(pid):  # noqa: ASYNC110 - the server is another process
            await asyncio.sleep(0.01)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_valkey, "SILENT_S", 1.0)
    monkeypatch.setattr(embedded_valkey, "PROBE_S", 0.5)
    monkeypatch.setattr(EmbeddedValkey._answers, "__defaults__", (1.0,))


@pytest.mark.usefixtures("impatient")
async def test_a_suspended_server_has_ended_before_another_is_started(tmp_path: Path) -> None:
    """Two servers on one folder damage its data, and the first removes the socket of the second when it goes on."""
    async with EmbeddedValkey(tmp_path / "data") as first:
        await put(first.url, "x")
        suspended = pid_of(first)
        os.kill(suspended, signal.SIGSTOP)
        async with EmbeddedValkey(tmp_path / "data") as second:
            assert has_ended(suspended)
            assert await get(second.url, "x") == b"kept"


@pytest.mark.usefixtures("impatient")
async def test_a_user_replaces_a_server_that_does_not_answer(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path / "data") as server:
        await put(server.url, "x")
        suspended = pid_of(server)
        os.kill(suspended, signal.SIGSTOP)
        async with asyncio.timeout(60):
            while not has_ended(suspended) or not await server._answers():  # noqa: ASYNC110 - the server is another process
                await asyncio.sleep(0.05)
        assert pid_of(server) != suspended
        assert await get(server.url, "x") == b"kept"


@pytest.mark.usefixtures("impatient")
async def test_the_last_user_ends_a_suspended_server(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path / "data") as server:
        suspended = pid_of(server)
        os.kill(suspended, signal.SIGSTOP)
    await end_of(suspended)


@pytest.mark.usefixtures("impatient")
async def test_a_server_whose_folder_was_removed_is_ended(tmp_path: Path) -> None:
    async with EmbeddedValkey(tmp_path / "data") as server:
        pid = pid_of(server)
        while (tmp_path / "data").exists():  # the server may just be writing a file into it
            shutil.rmtree(tmp_path / "data", ignore_errors=True)
    await end_of(pid)


@pytest.mark.usefixtures("impatient")
async def test_a_server_whose_locks_and_socket_were_removed_has_ended_before_another_is_started(tmp_path: Path) -> None:
    """As programs do that clean up temporary folders."""
    async with EmbeddedValkey(tmp_path) as server:
        pid = pid_of(server)
        for name in ("users.lock", "start.lock", "server.lock", "valkey.pid", "valkey.sock"):
            (tmp_path / name).unlink()
        await end_of(pid)
        async with asyncio.timeout(60):
            while not await server._answers():  # noqa: ASYNC110 - the server is another process
                await asyncio.sleep(0.05)


async def test_no_server_is_started_while_another_process_has_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a server whose process ID is unknown: its folder is not used, and no other process is killed."""
    monkeypatch.setattr(embedded_valkey, "END_S", 0.2)
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data" / "valkey.pid").write_text(str(os.getpid()))
    with (tmp_path / "data" / "server.lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataDirError, match=r"server\.lock"):
            async with EmbeddedValkey(tmp_path / "data"):
                pass


async def test_a_server_that_does_not_start_in_time_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here it listens at another socket than the one that it was given."""
    server = EmbeddedValkey(tmp_path / "data")
    options = embedded_valkey.server_options(server.data_dir, server.socket)
    elsewhere = [*options, "--port", "0", "--unixsocket", f"{server.socket}.other"]
    monkeypatch.setattr(embedded_valkey, "server_options", lambda *_: elsewhere)
    monkeypatch.setattr(embedded_valkey, "START_TIMEOUT_S", 1.5)
    with pytest.raises(DataDirError, match="did not start"):
        async with server:
            pass
    await end_of(pid_of(server))


async def test_a_server_ends_when_all_its_users_are_killed(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys; from pathlib import Path; from crawler.app.embedded_valkey import EmbeddedValkey\n"
        "async def use():\n"
        "    async with EmbeddedValkey(Path(sys.argv[1])):\n"
        "        print(flush=True)\n"
        "        await asyncio.sleep(600)\n"
        "asyncio.run(use())"
    )
    users = []
    for _ in range(2):
        users.append(await asyncio.create_subprocess_exec(sys.executable, "-c", program, tmp_path / "data", stdout=-1))
        assert users[-1].stdout is not None
        assert await users[-1].stdout.readline()
    pid = int((tmp_path / "data" / "valkey.pid").read_text())
    await put(f"unix://{tmp_path / 'data' / 'valkey.sock'}", "x")
    for user in users:
        assert not has_ended(pid)
        user.kill()
        await user.wait()
        await asyncio.sleep(2.5 if user is users[0] else 0)
    await end_of(pid)
    async with EmbeddedValkey(tmp_path / "data") as server:
        assert await get(server.url, "x") == b"kept"


async def test_a_start_that_is_interrupted_leaves_no_server(tmp_path: Path) -> None:
    """At any time: the server goes into the background, and names itself later."""
    for number in range(12):
        folder = tmp_path / str(number)
        starting = asyncio.create_task(EmbeddedValkey(folder).__aenter__())
        await asyncio.sleep(number * 0.004)
        starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            await asyncio.sleep(0.5)
            with (folder / "server.lock").open("ab") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error if a server has it
