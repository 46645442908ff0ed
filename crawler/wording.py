"""The wording of messages: numbers with the nouns that they count, and commands with the crawl that they are about."""

from __future__ import annotations

import re
from collections.abc import Iterable

DEFAULT_NAME = "crawl"
"""The crawl that a command is about unless `--crawl` names another."""

IS_REDIS = re.compile(r"(rediss?|valkeys?)(\+\w+)?://|unix:/", re.IGNORECASE)
"""Matches a Redis URL, which people type instead of other words."""

FOR_REDIS = "use --redis for a Redis URL"


def count_of(number: int, noun: str, many: str = "") -> str:
    """Return `number` with `noun`, or with its plural unless it is 1: "1 page", "2,000 pages", "0 addresses".
    `many`: the plural of `noun`, if it is not made by adding "s" or "es"."""
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{number:,} {noun if number == 1 else many or noun + ending}"


def with_place(texts: Iterable[str], place: str) -> list[str]:
    """Return `texts` with `place`, the options that select the crawl, in the commands that they name, unless it is "" or
    names only the default crawl."""
    if place in ("", f"--crawl {DEFAULT_NAME}"):
        return list(texts)
    named, chosen = re.compile("`(crawler [^`]*)`"), re.compile(" --crawl [^ ]+")
    return [named.sub(lambda found: f"`{chosen.sub('', found[1])} {place}`", text) for text in texts]
