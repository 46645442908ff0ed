"""A real Valkey server under a test's control: started, killed and restarted by its own process id.

PEERCRAWL_TEST_SERVER names another program to start instead of the bundled server: with `redis-server`, the tests run on
Debian's Redis.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from crawler.app.embedded_valkey import server_binary


def chosen_server() -> Path:
    """The program that tests start as their server. Raises RuntimeError if PEERCRAWL_TEST_SERVER names none."""
    name = os.environ.get("PEERCRAWL_TEST_SERVER")
    if not name:
        return server_binary()
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"PEERCRAWL_TEST_SERVER names {name}, which is not installed")
    return Path(found)


class ValkeyProcess:
    """A server on a Unix socket. `persistent`: append-only file, synced at every write. `config`: a file."""

    def __init__(
        self,
        data_dir: Path,
        persistent: bool,
        binary: Path | None = None,
        options: tuple[str, ...] = (),
        config: Path | None = None,
    ):
        self.data_dir = data_dir
        # Unix socket paths are short; pytest's folders are not.
        self._socket_dir = Path(tempfile.mkdtemp(prefix="pc-"))
        self.socket = self._socket_dir / "valkey.sock"
        self._persistent = persistent
        self._binary = binary or chosen_server()
        self._options = options
        self._config = [str(config)] if config else []
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> ValkeyProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._socket_dir, ignore_errors=True)

    def start(self) -> None:
        durable = ("--appendonly", "yes", "--appendfsync", "always") if self._persistent else ("--appendonly", "no")
        words = ["--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.data_dir), "--save", ""]
        with (self.data_dir / "valkey.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._binary), *self._config, *words, *durable, *self._options], stdout=log, stderr=log
            )
        deadline = time.monotonic() + 180
        while not self._answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                self.kill()
                raise RuntimeError((self.data_dir / "valkey.log").read_text()[-2000:])
            time.sleep(0.005)

    def kill(self) -> None:
        """As a crash would end it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self.socket.unlink(missing_ok=True)

    def _answers(self) -> bool:
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
            probe.settimeout(5)
            try:
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                answer = probe.recv(64)
                return answer[:1] in (b"+", b"-") and not answer.startswith(b"-LOADING")  # -NOAUTH is an answer, too
            except OSError:
                return False
