"""How this program starts others, and what these inherit: our code only, the environment without secrets, and no way to
gain privileges."""

from __future__ import annotations

import ctypes
import os
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
