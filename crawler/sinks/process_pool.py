"""Several processes that share the work of a command, such as an export. They end with it, also if it is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from threading import Thread

from crawler.errors import UserError


@contextlib.contextmanager
def shared_work(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of this many processes. Raises UserError if one of them cannot be started, or is killed."""
    try:
        os.environ["PYTHONSAFEPATH"] = "1"  # or new interpreters would import from the working directory
        with ProcessPoolExecutor(processes, initializer=_end_with_parent) as pool:
            try:
                pool.submit(os.getpid)  # starts the processes
            except OSError as error:
                raise UserError(f"no process can be started for this command: {error.strerror}") from error
            yield pool
    except BrokenProcessPool as error:
        raise UserError(
            "a process of this command was killed, perhaps for lack of memory: repeat the command, with fewer --processes"
        ) from error


def _end_with_parent() -> None:
    """Without this, a process would wait for work for ever: it holds both ends of the pipe from which it reads."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

    Thread(target=watch, name="parent", daemon=True).start()
