"""Stops an embedded server when all its users were killed: `python valkey_watcher.py FOLDER SOCKET INODE`, where INODE is
that of the folder's `users.lock`.

It runs in the background as long as the server does, and imports nothing of ours, so that it takes little memory. It
decides under `start.lock`, as users do. It asks the server to stop by its socket, so it never ends another process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO

CHECK_S, STOP_S = 1.0, 10.0
"""Seconds between two checks, and how long the server may take to stop before the next one."""


def watch(folder: Path, at: str, inode: int) -> None:
    """Return when the server has ended, or at once if the locks are no longer those of its users."""
    with contextlib.ExitStack() as stack:
        watching, start, server, users = (
            stack.enter_context((folder / f"{name}.lock").open("rb+"))  # creates none in a folder that is being removed
            for name in ("watch", "start", "server", "users")
        )
        if os.fstat(users.fileno()).st_ino != inode or not locked(watching):  # another one watches
            return
        while True:
            time.sleep(CHECK_S)
            if not locked(start):
                continue
            if locked(server):  # nobody starts one while we have `start.lock`
                fcntl.flock(watching, fcntl.LOCK_UN)  # first, for the watcher of the next server
                return
            if locked(users):
                fcntl.flock(users, fcntl.LOCK_UN)  # a new user waits for `start.lock`
                with contextlib.suppress(OSError):
                    _stop(at)
            fcntl.flock(start, fcntl.LOCK_UN)


def _stop(at: str) -> None:
    """Ask the server to stop, and wait until it has closed the connection. What it has confirmed is in its files."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(STOP_S)
        connection.connect(at)
        connection.sendall(b"SHUTDOWN NOSAVE\r\n")
        while connection.recv(1_000):
            pass


def locked(lock: IO[bytes]) -> bool:
    """Lock the open file `lock` exclusively. Returns False if another process has a lock on it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    if os.fork() == 0:
        os.setsid()  # Ctrl-C and the end of a terminal do not reach it
        os.chdir("/")
        with contextlib.suppress(FileNotFoundError):  # somebody has removed the locks
            watch(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    os._exit(0)
