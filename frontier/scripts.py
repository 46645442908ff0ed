"""Loads the Lua scripts in `frontier/lua/`. Each file is one transition of the frontier's state.

Only scripts change state, so each change is atomic, and a call that a script refuses changes nothing. The header comment
of each file is its contract. A test compares it with the number of keys below.
"""

from __future__ import annotations

import hashlib
from importlib.resources import files

import msgspec


class Script(msgspec.Struct, frozen=True):
    """One Lua script: its source, and the SHA-1 that EVALSHA takes."""

    name: str
    source: str
    sha: bytes
    keys: int  # number of KEYS


def _load(name: str, keys: int) -> Script:
    source = files("frontier").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest().encode(), keys)


CLAIM = _load("claim", keys=1)
LEAVE = _load("leave", keys=1)
SAVE_OWNERS = _load("save_owners", keys=1)
OPEN_CRAWL = _load("open_crawl", keys=1)
SAVE_SETTINGS = _load("save_settings", keys=1)
PUSH = _load("push", keys=3)
LEASE = _load("lease", keys=7)
SETTLE = _load("settle", keys=5)
RELEASE = _load("release", keys=2)
REVOKE = _load("revoke", keys=1)
RESERVE_BUDGET = _load("reserve_budget", keys=2)
RECOUNT = _load("recount", keys=1)
SURVEY = _load("survey", keys=5)
REQUEUE = _load("requeue", keys=4)
SAVE_ROBOTS = _load("save_robots", keys=1)
RATE_LIMIT = _load("rate_limit", keys=1)
RESERVE = _load("reserve", keys=2)
END_RESERVATION = _load("end_reservation", keys=1)
CLAIM_DUTY = _load("claim_duty", keys=1)

ALL = (
    CLAIM,
    CLAIM_DUTY,
    LEAVE,
    SAVE_OWNERS,
    OPEN_CRAWL,
    SAVE_SETTINGS,
    PUSH,
    LEASE,
    SETTLE,
    RELEASE,
    REVOKE,
    RESERVE_BUDGET,
    RECOUNT,
    SURVEY,
    REQUEUE,
    SAVE_ROBOTS,
    RATE_LIMIT,
    RESERVE,
    END_RESERVATION,
)
