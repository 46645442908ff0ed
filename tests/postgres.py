"""A PostgreSQL server of a test's own: its own cluster in a temporary folder, on a Unix socket, with a password.

PostgreSQL refuses to run as root, so root starts it as the user `postgres` of Debian's package.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

import pytest

from tests.e2e.harness import wait_until

PASSWORD = "s3cret"


def need_postgres() -> None:
    """Skip the test, or fail it if CI is set, unless psycopg and a server are installed."""
    if importlib.util.find_spec("psycopg") is None or programs() is None:
        if os.environ.get("CI"):
            raise RuntimeError("CI must install postgresql; see .ci/run")
        pytest.skip("needs psycopg and postgresql", allow_module_level=True)


def programs() -> Path | None:
    """The folder with the newest server, None if there is none."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    return Path(found).parent if found else folders[-1].parent if folders else None


class PostgresProcess:
    """A server with the database `postgres`, for use as a context manager. `url` lacks the password."""

    def __init__(self) -> None:
        found = programs()
        assert found is not None
        self._programs = found
        self._user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        # Not below the folder of a test: the path of a socket has at most 107 bytes, and that folder is closed to others.
        self._folder = Path(tempfile.mkdtemp(prefix="pg-"))
        shutil.chown(self._folder, self._user)
        self.url = f"postgresql://crawler@/postgres?host={self._folder}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        password = self._folder / "password"
        password.write_text(PASSWORD)
        shutil.chown(password, self._user)
        words = ["--auth=scram-sha-256", f"--pwfile={password}", "--username=crawler", "--encoding=UTF8", "--no-locale"]
        self._run("initdb", "--no-sync", *words, "-D", str(self._folder / "data"))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start the server, and return when it answers."""
        words = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), "-k", str(self._folder), "-h", ""]
        words += ["-c", "fsync=off", "-c", "unix_socket_permissions=0777"]
        self._process = subprocess.Popen(
            words, user=self._user, cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(self._answers, "PostgreSQL")

    def kill(self) -> None:
        """End the server and all connections at once (an "immediate shutdown")."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)

    def query(self, words: str) -> list[tuple[Any, ...]]:
        """The rows that the query returns."""
        import psycopg

        with psycopg.connect(self.url, password=PASSWORD, autocommit=True) as connection:
            cursor = connection.execute(words.encode())
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        import psycopg

        try:
            return self.query("SELECT 1") == [(1,)]
        except psycopg.OperationalError:
            return False

    def _run(self, program: str, *words: str) -> None:
        command = [str(self._programs / program), *words]
        subprocess.run(command, user=self._user, cwd=self._folder, check=True, capture_output=True, timeout=300)
