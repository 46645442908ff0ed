"""How many files and connections a replica keeps open, and raising the system's limit to that number.

The usual soft limit of 1,024 exists for programs that call select(2). Other programs are meant to raise it themselves, up
to the hard limit, which is usually about half a million.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

IDLE_CONNECTIONS = 1_024
"""Maximum number of origins to which idle connections are kept. Domains take turns, so with fewer connections than leased
domains, hardly any would be reused, and a new one costs as much CPU as the rest of a small page. A connection takes 9 KB,
or 150 KB with TLS."""

SPARE_FILES = 164
"""For everything but requests in flight and idle connections: archive files, connections to Redis, and up to 64 to the
status pages."""

FEWEST_IDLE = 16


def required_files(concurrency: int) -> int:
    """How many files a replica with `concurrency` requests in flight may have open."""
    return concurrency + IDLE_CONNECTIONS + SPARE_FILES


def raise_fd_limit(concurrency: int) -> int:
    """Raise the soft limit of this process to what it needs, or to the hard limit if that is less. Returns how many idle
    connections it may keep."""
    allowed = _raise_to(required_files(concurrency))
    return max(FEWEST_IDLE, min(IDLE_CONNECTIONS, allowed - concurrency - SPARE_FILES))


def highest_fd_limit() -> int:
    """The highest limit that a process may set for itself."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def is_out_of_files() -> bool:
    """Whether this process cannot open another file now. Libraries that cannot do so often report something else."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno in (errno.EMFILE, errno.ENFILE)
    return False


def _raise_to(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = min(wanted, highest_fd_limit())
    with contextlib.suppress(OSError, ValueError):  # some systems do not allow it
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
