"""How many files and connections a replica keeps open, and what the system lets it.

A system's usual soft limit of 1,024 is for programs that call select(2); whoever needs more is meant to raise it to at most
the hard limit, which is half a million or so.
"""

from __future__ import annotations

import contextlib
import resource

IDLE_CONNECTIONS = 1_024
"""Origins to which an idle connection is kept, at most. Domains take their turns one after the other, so with fewer of
these than domains under lease hardly any would be used again: a new one costs as much CPU as the rest of a small page. Each
takes 9 KB, and 150 KB with TLS."""

SPARE_FILES = 100
"""Besides requests in flight and idle connections: files of the archive, connections to Redis, the live page."""

FEWEST_IDLE = 16


def required_files(concurrency: int) -> int:
    """Files that a replica with so many requests in flight may have open."""
    return concurrency + IDLE_CONNECTIONS + SPARE_FILES


def raise_fd_limit(concurrency: int) -> int:
    """Raise this process's soft limit to what it needs, as far as the hard limit lets. Returns how many idle connections
    it may keep."""
    allowed = _raise_to(required_files(concurrency))
    return max(FEWEST_IDLE, min(IDLE_CONNECTIONS, allowed - concurrency - SPARE_FILES))


def highest_fd_limit() -> int:
    """The number to which a process may raise its own limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return hard if hard != resource.RLIM_INFINITY else 1 << 30


def _raise_to(wanted: int) -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    allowed = min(wanted, highest_fd_limit())
    with contextlib.suppress(OSError, ValueError):  # not every system lets
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
