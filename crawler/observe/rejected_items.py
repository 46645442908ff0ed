"""Says in words how many items of each data set were rejected, and mostly why. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from crawler.page import words_of

SHOWN = 10
"""Data sets that are listed."""


def rejected_in_words(counted: Mapping[str, int]) -> str:
    """Return for each data set how many items were rejected, and the most frequent reason. `counted`: as in `Counts`."""
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, number in counted.items():
        name, reason = words_of(word)
        by_name[name][reason] += number
    names = sorted(by_name, key=lambda name: (-by_name[name].total(), name))
    listed = [f"{name} {by_name[name].total():,} ({_reasons(by_name[name])})" for name in names[:SHOWN]]
    return ", ".join(listed) + (f" and {len(names) - SHOWN:,} more data sets" if len(names) > SHOWN else "")


def _reasons(counted: Counter[str]) -> str:
    ((reason, _),) = counted.most_common(1)
    return reason if len(counted) == 1 else f"mostly {reason}"
