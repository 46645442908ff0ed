"""How this program starts others, and what these inherit: our code only, the environment without secrets, and no way to
gain privileges."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import sys

_INHERITED = ("HOME", "LANG", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR")

_PR_SET_NO_NEW_PRIVS = 38  # prctl(2), PR_SET_NO_NEW_PRIVS(2const)


def python_command(module: str, *words: str) -> tuple[str, ...]:
    """The command line that runs `module` with the arguments `words`. Nothing is imported from the working directory
    (`-P`), where a `json.py` or `crawler.py` would be run in place of ours."""
    return (sys.executable, "-P", "-m", module, *words)


def environment() -> dict[str, str]:
    """The variables that an interpreter or server needs. All others may hold secrets, such as the URL of Redis."""
    return {name: os.environ[name] for name in _INHERITED if name in os.environ}


def renounce_privileges() -> None:
    """Make sure that neither this process nor its children gain privileges, such as those of a setuid program. Linux only;
    elsewhere, nothing changes. Raises OSError if the kernel refuses."""
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS)")


_M_MMAP_THRESHOLD = -3  # mallopt(3)
_LARGE_BLOCK = 1 << 20


def give_back_large_blocks() -> None:
    """Let each block of a mebibyte or more, such as a body, go back to the system when it is freed. By default, the C
    library of Linux keeps them after the first ones, in pieces that the next body may not fit in."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


IDLE_CONNECTIONS = 1_024
"""Maximum number of origins to which idle connections are kept. Domains take turns, so with fewer connections than leased
domains, hardly any would be reused, and a new one costs as much CPU as the rest of a small page. A connection takes 9 KB,
or 150 KB with TLS."""

SPARE_FILES = 164
"""For everything but requests in flight and idle connections: archive files, connections to Redis, and up to 64 to the
status pages."""

FEWEST_IDLE = 16

MOST_WAITING = 4
"""The requests that only wait for a slow server, per request that may be in flight otherwise."""


def required_files(concurrency: int) -> int:
    """How many files a replica with `concurrency` requests in flight may have open."""
    return _requests(concurrency) + IDLE_CONNECTIONS + SPARE_FILES


def _requests(concurrency: int) -> int:
    return (1 + MOST_WAITING) * concurrency


def raise_fd_limit(concurrency: int) -> int:
    """Raise the soft limit of this process to what it needs, or to the hard limit if that is less. Returns how many idle
    connections it may keep."""
    allowed = _raise_to(required_files(concurrency))
    return max(FEWEST_IDLE, min(IDLE_CONNECTIONS, allowed - _requests(concurrency) - SPARE_FILES))


def most_waiting(concurrency: int) -> int:
    """How many requests may only wait for slow servers, as far as the limit of this process allows."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    most = MOST_WAITING * concurrency
    return most if soft == resource.RLIM_INFINITY else max(0, min(most, soft - SPARE_FILES - FEWEST_IDLE - concurrency))


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
