"""Loads the Lua scripts in `frontier/lua/`. Each file is one transition of the frontier's state, or a part of one.

Only scripts change the state of shards, so each change is atomic, and a call that a script refuses changes nothing.
(Operators' commands, health records and summaries are single commands.) The header comment of each file is its contract. A
test compares it with the number of keys below.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec


class Script(msgspec.Struct, frozen=True):
    """One Lua script: its source, the SHA-1 that EVALSHA takes, and the number of its keys."""

    name: str
    source: str
    sha: bytes
    keys: int


def _load(name: str, keys: int, parts: tuple[str, ...] = ()) -> Script:
    """The script in `name`.lua, after the functions in the files of `parts`. `load_visits` makes those of `VISITS`."""
    source = "\n".join(map(_source, (*parts, name)))
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest().encode(), keys)


def _source(part: str) -> str:
    if part == VISITS[-1]:
        made = "\n".join(map(_read, VISITS))
        return f"local made\nlocal function load_visits()\nmade = made or (function()\n{made}\nend)()\nreturn made\nend"
    return _read(part)


@cache
def _read(part: str) -> str:
    # `importlib.resources` would take a hundredth of the time in which a replica starts.
    return (Path(__file__).parent / "lua" / f"{part}.lua").read_text(encoding="utf-8")


VISITS = ("page_records", "known_pages", "visits")
"""What a call needs if pages are visited again. A call makes all functions of its script, which takes the server a fifth of
the time of a short one, so these are in a function, of which the last file returns what others use."""

LEASE_PARTS = (
    "lost_data",
    "lost_writes",
    "first_ms",
    "fence",
    "repeat_lease",
    "dead_letter",
    "take_back",
    "count_merged",
    "wake",
    "visits",
    "lease_packed",
    "lease_shared",
)
"""The files of `lease` besides its own, in the order in which they use each other."""

SETTLE_PARTS = (
    "lost_data",
    "forgotten",
    "lost_writes",
    "first_ms",
    "count_merged",
    "wake",
    "visits",
    "resettle",
    "count",
    "dead_letter",
)
"""The same of `settle`."""

PARTS = frozenset((*LEASE_PARTS, *SETTLE_PARTS, *VISITS, "long_queue", "forgotten", "push_moved"))

CLAIM = _load("claim", keys=1)
LEAVE = _load("leave", keys=1)
CORRECT_TIME = _load("correct_time", keys=1)
SAVE_OWNERS = _load("save_owners", keys=1)
CREATE_CRAWL = _load("create_crawl", keys=1)
SAVE_SETTINGS = _load("save_settings", keys=1)
IDENTIFY_SHARD = _load("identify_shard", keys=2)
PUSH = _load("push", keys=4, parts=("long_queue", "forgotten", "page_records", "known_pages", "push_moved"))
LEASE = _load("lease", keys=8, parts=LEASE_PARTS)
ADD_TO_OUTBOX = _load("add_to_outbox", keys=2, parts=("lost_data",))
REMOVE_FROM_OUTBOX = _load("remove_from_outbox", keys=2, parts=("lost_data",))
SETTLE = _load("settle", keys=8, parts=SETTLE_PARTS)
PACK = _load("pack", keys=2, parts=("lost_data",))
UNPACK = _load("unpack", keys=2, parts=("lost_data", "count_merged"))
RELEASE = _load("release", keys=6, parts=("lost_data",))
REVOKE = _load("revoke", keys=5, parts=("lost_writes",))
RESTORE = _load("restore", keys=4, parts=("lost_data", "dead_letter"))
RESTORE_VISITS = _load("restore_visits", keys=2, parts=("lost_data", "forgotten", "page_records", "known_pages"))
RESERVE_BUDGET = _load("reserve_budget", keys=2)
RECOUNT = _load("recount", keys=1)
SURVEY = _load("survey", keys=6)
REQUEUE = _load("requeue", keys=5, parts=("lost_data",))
RETRY_NOW = _load("retry_now", keys=4)
REFRESH = _load("refresh", keys=2, parts=("lost_data", "page_records"))
SAVE_ROBOTS = _load("save_robots", keys=1)
RATE_LIMIT = _load("rate_limit", keys=1)
RESERVE = _load("reserve", keys=4, parts=("lost_data",))
END_RESERVATION = _load("end_reservation", keys=2)
CLAIM_DUTY = _load("claim_duty", keys=1)
KEEP_TYPES = _load("keep_types", keys=1)
BEGIN_RESHARD = _load("begin_reshard", keys=1)
CANCEL_RESHARD = _load("cancel_reshard", keys=1)
FREEZE_SHARD = _load("freeze_shard", keys=6, parts=("lost_writes", "first_ms", "dead_letter", "take_back"))
ADD_COPIED = _load("add_copied", keys=2, parts=("lost_data",))
COPY_SEEN = _load("copy_seen", keys=3, parts=("lost_data",))
SWITCH_LAYOUT = _load("switch_layout", keys=1)
END_RESHARD = _load("end_reshard", keys=1)
REMOVE_COPIED = _load("remove_copied", keys=2, parts=("lost_data",))
FORGET_DOMAIN = _load("forget_domain", keys=5, parts=("lost_data", "forgotten"))
FORGET_URLS = _load("forget_urls", keys=5, parts=("page_records",))
FORGET_VIA = _load("forget_via", keys=2, parts=("lost_data", "count_merged"))

ALL = tuple(value for value in vars().values() if isinstance(value, Script))
