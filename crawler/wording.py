"""The wording of messages: numbers with the nouns that they count."""

from __future__ import annotations


def count_of(number: int, noun: str, many: str = "") -> str:
    """Return `number` with `noun`, or with its plural unless it is 1: "1 page", "2,000 pages", "0 addresses".
    `many`: the plural of `noun`, if it is not made by adding "s" or "es"."""
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun if number == 1 else many or noun + ending}"
