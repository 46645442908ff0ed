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


_REMEDIES = {
    "OOM": "give it more memory (maxmemory), or remove what others keep in it",
    "MISCONF": "it cannot save its data: see its log, and make room on its disk",
    "READONLY": "it is the replica of another server: name that one",
    "NOREPLICAS": "start its replicas, or lower min-replicas-to-write",
    "BUSY": "a script of another client blocks it: SCRIPT KILL ends that",
    "LOADING": "it reads its data after a start: wait",
    "CLUSTERDOWN": "start the nodes that are away again; `crawler doctor` names them",
    "max": "raise its maxclients, or run fewer clients",
}
"""First word of an error reply of Redis -> what to do."""


def redis_remedy(error: str) -> str:
    """What to do about `error`, a message that quotes what Redis has answered; "" if Redis has not answered."""
    said = error.partition("cannot serve now: ")[2] or error
    return _REMEDIES.get(said.removeprefix("ERR ").partition(" ")[0].rstrip(":"), "")


def with_remedy(error: str) -> str:
    """Return `error`, see `redis_remedy`, with what to do about it."""
    return "; ".join(filter(None, [error, redis_remedy(error)]))


def eviction_warning(policy: str, evicted: int = 0) -> str:
    """The warning about a server with this maxmemory-policy ("": unknown) that has evicted so many keys since the last
    repair; "" if none is needed."""
    may_evict, remedy = policy not in ("", "noeviction"), "CONFIG SET maxmemory-policy noeviction"
    if evicted:
        of_policy, first = (f" (maxmemory-policy {policy})", f"{remedy}, then ") if may_evict else ("", "")
        lost = f"Redis has evicted {count_of(evicted, 'key')}{of_policy}, so URLs may be missing"
        return f"{lost}: {first}`crawler repair --evicted`"
    if not may_evict:
        return ""
    return f"Redis may evict keys (maxmemory-policy {policy}), which loses URLs without an error: {remedy}"
