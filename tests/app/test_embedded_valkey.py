"""The embedded store: the first user starts it, others join, the last one stops it, and its data is kept."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
from pathlib import Path

import pytest

from crawler.app import embedded_valkey
from crawler.app.embedded_valkey import EmbeddedValkey
from crawler.errors import DataDirError
from frontier.errors import RedisAway
from frontier.store import RedisStore, command, connect
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


def environment_of(server: EmbeddedValkey) -> bytes:
    pid = (server.data_dir / "valkey.pid").read_text().strip()
    return Path(f"/proc/{pid}/environ").read_bytes()


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


async def test_a_folder_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(DataDirError, match="--data-dir"):
        async with EmbeddedValkey(tmp_path / "file" / "data"):
            pass


async def test_nobody_else_can_use_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_REPLICA__REDIS", "redis://:secret@queue")
    async with EmbeddedValkey(tmp_path / "data") as server:
        assert stat.S_IMODE(server.data_dir.stat().st_mode) == 0o700
        assert b"secret" not in environment_of(server)


async def test_a_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    """They could change the settings in it, and with them the code that replicas load."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    with pytest.raises(DataDirError, match="other users can change the data directory"):
        async with EmbeddedValkey(tmp_path / "shared"):
            pass


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
