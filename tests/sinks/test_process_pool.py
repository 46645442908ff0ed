"""Processes that share the work of a command."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from crawler.errors import UserError
from crawler.sinks.export import shared_work


def _dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_an_error_of_one_line() -> None:
    """As the kernel does it if there is no memory."""
    with pytest.raises(UserError, match="repeat the command, with fewer --processes"), shared_work(2) as pool:
        pool.submit(_dies).result()


def test_so_is_one_that_the_system_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr("multiprocessing.popen_fork.os.fork", fork)
    with pytest.raises(UserError, match="no process can be started"), shared_work(2) as pool:
        pool.submit(os.getpid).result()
