"""The kinds of attack, one domain of a synthetic web each."""

from __future__ import annotations

from enum import StrEnum


class Hazard(StrEnum):
    """What the page /hazard (or the robots.txt, or the sitemap) of a hostile domain does."""

    BOMB = "bomb"  # gzip: 1 GiB in 1 MiB
