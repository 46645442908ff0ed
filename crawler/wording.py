"""The wording of messages: numbers with the nouns that they count."""

from __future__ import annotations


def count_of(number: float, noun: str, plural: str = "") -> str:
    """Return `number` with `noun`, or with its plural unless it is 1: "1 page", "2,000 pages", "0 addresses".
    `plural`: the plural of `noun`, if it does not end in "s" or "es" as usual."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {plural or noun + ending}"
