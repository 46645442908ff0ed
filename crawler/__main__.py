"""`crawler` and `python -m crawler`."""

from __future__ import annotations

from crawler.cli import main

if __name__ == "__main__":
    main()
