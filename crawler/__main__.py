"""The entry point of `crawler` and `python -m crawler`."""

from __future__ import annotations

import gc

# Objects created by imports stay alive. Scanning them for garbage repeatedly takes a sixth of a command's start-up time.
gc.set_threshold(50_000, 20, 20)

from crawler.cli.main import main  # noqa: E402 - must come after set_threshold

if __name__ == "__main__":
    main()
