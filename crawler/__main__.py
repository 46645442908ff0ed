"""The entry point of `crawler` and `python -m crawler`."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
from pathlib import Path

# `python -m crawler` imports from the working directory first, where a `json.py` would be run in place of the library's.
if __name__ == "__main__" and not sys.flags.safe_path and Path(sys.path[0]) != Path(__file__).parent.parent:
    del sys.path[0]

# A descriptor 0, 1 or 2 that is closed at the start would become that of the next file or socket to be opened.
for _number, _name, _mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
    try:
        os.fstat(_number)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        setattr(sys, _name, open(_number, _mode))  # noqa: PTH123, SIM115 - a descriptor, for the life of the process

# Imports create half a million objects, which stay alive. Scanning them for garbage takes a tenth of a command's start-up
# time, even once.
gc.set_threshold(600_000, 20, 20)

_codes: list[int] = []


def _leave() -> None:
    """End at once when all else that has to be done at the exit is done. Freeing every object would take a tenth of a
    second, for memory that the system takes back anyway. After an error that nobody has handled, Python ends as usual."""
    if _codes:
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            sys.stderr.flush()  # `run_to_exit` has flushed standard output, and answered its errors
        os._exit(_codes[0])
    gc.unfreeze()  # objects that are frozen at the exit are not freed, which C libraries report as leaks


atexit.register(_leave)  # the first one, so it is called last

# Ctrl-C during the imports ends the process without a traceback. Who ignores it, such as nohup, still does.
_handler = signal.getsignal(signal.SIGINT)
if _handler is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

if sys.argv[1:3] == ["run", "--when-told"]:  # a replica of a supervisor, which has no options
    from crawler.cli.run import run_supervised as _run
else:
    from crawler.cli.main import main as _run

signal.signal(signal.SIGINT, _handler)


def main() -> None:
    """Run the command line. Raises SystemExit with the exit code."""
    try:
        _run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            _codes.append(end.code or 0)
        raise
    sys.exit()


if __name__ == "__main__":
    main()
