"""How a command ends: its exit code, and errors that a user can fix as one line."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import NoReturn

from crawler.errors import TRY_LATER, UPLOADS_LEFT, UserError
from frontier.errors import FrontierError, RedisAway, Resharding

INTERRUPTED = 130

EXIT_CODES = {
    0: "done",
    1: "something failed: replicas crashed again and again, `crawler crawl` ended without a page, an audit found a breach, "
    "or the doctor found a problem",
    2: "the command cannot be run as given; the message says what to change",
    UPLOADS_LEFT: "done, but finished files could not be uploaded; the next start uploads them, or `crawler finish`",
    TRY_LATER: "Redis is unavailable, or the crawl is being resharded; the same command may succeed later",
    INTERRUPTED: "interrupted. Commands that crawl stop cleanly at the first Ctrl-C, with 0 if a replica runs; the second "
    "one does not wait for requests in flight",
    143: "ended by SIGTERM before it was done; 129 by SIGHUP",
}

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write that say nothing about the crawler."""


def run_to_exit(command: Callable[[], object]) -> None:
    """Call `command`. A user's mistake is printed as one line on standard error, without a traceback. Settings that differ
    or cannot be used are printed before it, one per line."""
    try:
        command()
    except (UserError, FrontierError) as error:
        _print(error, error.details if isinstance(error, UserError) else (), _advice(error))
        sys.exit(TRY_LATER if isinstance(error, (RedisAway, Resharding)) else 2)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        sys.exit(1)
    except OSError as error:
        if error.errno not in FULL:
            raise
        _cannot_write(error)
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):
            sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            _cannot_write(error)


def _cannot_write(error: OSError) -> NoReturn:
    """End the command because a disk or the device of its output is full."""
    # What is buffered would be tried again, and reported with a traceback, when the interpreter exits.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _print(UserError(f"cannot write the output: {error.strerror}"))
    sys.exit(1)


def _advice(error: Exception) -> str:
    """What to check if the server that the user named does not answer. The embedded one has a socket and no address."""
    if not isinstance(error, RedisAway):
        return ""
    if "OOM command" in str(error):
        return "; give it more memory (maxmemory)"
    return "; check that it is running, and the host and port in the Redis URL" * ("Redis at redis" in str(error))


def _print(error: Exception, details: Iterable[str] = (), advice: str = "") -> None:
    from crawler.cli.text import print_error  # noqa: PLC0415 - few commands fail, and replicas need no terminal

    with contextlib.suppress(OSError):  # the exit code says it all the same
        print_error(UserError(f"{error}{advice}"), details)
