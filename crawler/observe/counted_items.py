"""Says in words how many items each data set has, how many were rejected, and the most frequent reason. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from crawler.page import words_of

SHOWN = 10
"""Data sets that are listed."""


def items_in_words(counted: Mapping[str, int], extracted: Iterable[str], rejected: Mapping[str, int]) -> str:
    """Return the number of items of each data set; also for those of `extracted`, the rules' data sets, that have none, and
    for those of which all items were rejected. `rejected`: as in `Counts`."""
    refused = {name: reasons.total() for name, reasons in _by_name(rejected).items()}
    numbers = Counter(dict.fromkeys([*extracted, *refused], 0) | dict(counted))
    return _shortened([f"{name} {_number(number, refused.get(name, 0))}" for name, number in _ranked(numbers)])


def _number(kept: int, rejected: int) -> str:
    if kept:
        return f"{kept:,}"
    return f"none kept, {rejected:,} rejected" if rejected else "none"


def rejected_in_words(counted: Mapping[str, int]) -> str:
    """Return for each data set how many items were rejected, and the most frequent reason. `counted`: as in `Counts`."""
    by_name = _by_name(counted)
    totals = {name: reasons.total() for name, reasons in by_name.items()}
    return _shortened([f"{name} {total:,} ({_reasons(by_name[name])})" for name, total in _ranked(totals)])


def never_found_in_words(fields: Sequence[str]) -> str:
    """Return the fields that no item has, and how to find out why."""
    more = len(fields) - SHOWN
    names = ", ".join(fields[:SHOWN]) + (f" and {more:,} more" if more > 0 else "")
    return f"{names}: no page had a value; `crawler try URL` shows what each rule finds"


def _by_name(rejected: Mapping[str, int]) -> Mapping[str, Counter[str]]:
    """Return for each data set how many items were rejected for each reason."""
    by_name: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for word, number in rejected.items():
        name, reason = words_of(word)
        by_name[name][reason] += number
    return by_name


def _ranked(numbers: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(numbers.items(), key=lambda one: (-one[1], one[0]))


def _shortened(listed: list[str]) -> str:
    more = len(listed) - SHOWN
    return ", ".join(listed[:SHOWN]) + (f" and {more:,} more data sets" if more > 0 else "")


def _reasons(counted: Counter[str]) -> str:
    ((reason, _),) = counted.most_common(1)
    return reason if len(counted) == 1 else f"mostly {reason}"
