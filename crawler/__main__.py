"""`crawler` and `python -m crawler`."""

from __future__ import annotations

import gc

# What imports make stays: to look for garbage among it, time and again, takes a sixth of a command's start.
gc.set_threshold(50_000, 20, 20)

from crawler.cli.main import main  # noqa: E402 - after the line that concerns it

if __name__ == "__main__":
    main()
