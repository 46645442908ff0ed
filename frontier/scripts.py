"""Loads the Lua scripts in `frontier/lua/`. Each file is one transition of the frontier's state, or a part of one.

Only scripts change URLs, leases and counters, so each change is atomic, and a call that a script refuses changes nothing.
Plain commands write what operators change, such as the delay of a domain, and health records, summaries and the traces of
a reshard. The header comment of each file is its contract. A test compares it with the number of keys below.

A store carries out calls. A *call* is a command or a script with its arguments.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from hiredis import pack_command


class Script(msgspec.Struct, frozen=True, cache_hash=True):
    """One Lua script: its source, the SHA-1 that EVALSHA takes, and the number of its keys."""

    name: str
    source: str
    sha: bytes
    keys: int


class Rare(msgspec.Struct, frozen=True):
    """Files with functions that few calls need. A call makes all functions of its script, and each takes the server a tenth
    of the time of a command, so these are made by the Lua function `loader`, which returns those in `gives`."""

    loader: str
    files: tuple[str, ...]
    gives: tuple[str, ...]


def _load(name: str, keys: int, parts: tuple[str | Rare, ...] = ()) -> Script:
    source = "\n".join(map(_source, (*parts, name)))
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest().encode(), keys)


def _source(part: str | Rare) -> str:
    if isinstance(part, str):
        return _read(part)
    made, code = f"{part.loader}_made", "\n".join(map(_source, part.files))
    given = ", ".join(f"{name} = {name}" for name in part.gives)
    body = f"if {made} then return {made} end\n{code}\n{made} = {{{given}}}\nreturn {made}"
    return f"local {made}\nlocal function {part.loader}()\n{body}\nend"


@cache
def _read(part: str) -> str:
    # `importlib.resources` would take a hundredth of the time in which a replica starts.
    return (Path(__file__).parent / "lua" / f"{part}.lua").read_text(encoding="utf-8")


_VISITS = Rare(
    "load_visits",
    ("page_records", "known_pages", "visits"),
    ("KNOWN_FROM", "plan_visit", "requeue_visit", "queue_visits_of", "queue_visits"),
)
_FORGOTTEN = Rare("load_forgotten", ("forgotten",), ("is_refused", "count_refused"))
# `set_aside` is among functions that are rarely needed anyway, so that it costs no loader of its own.
_MOVED = Rare(
    "load_moved", ("set_aside", "page_records", "known_pages", "push_moved"), ("set_aside", "take_known", "push_moved")
)
_RECOVERY = Rare(
    "load_recovery",
    (
        "set_aside",
        "lost_writes",
        "repeat_lease",
        "dead_letter",
        "count_merged",
        "expire_leases",
        "make_due",
        "promote_retries",
    ),
    ("set_aside", "attempt", "notice_run", "repeat_lease", "expire_leases", "promote_retries"),
)
_LOST_LEASE = Rare(
    "load_lost_lease",
    (
        "set_aside",
        "forgotten",
        "first_ms",
        "read_owner",
        "lost_writes",
        "make_due",
        "promote_retries",
        "settle_lost_lease",
    ),
    ("set_aside", "may_settle_lost", "remove_queued", "put_off"),
)

LEASE_PARTS = (
    "lost_data",
    "first_ms",
    "read_owner",
    "fence",
    _RECOVERY,
    _VISITS,
    "urgent",
    "lease_packed",
    "lease_shared",
)
"""The files of `lease` besides its own, in the order in which they use each other."""

SETTLE_PARTS = (_VISITS, "count_merged", _LOST_LEASE, "count", "dead_letter")
"""The same of `settle`."""

PUSH_PARTS = ("make_due", "long_queue", _FORGOTTEN, _MOVED)
"""The same of `push`."""

CLAIM = _load("claim", keys=1)
LEAVE = _load("leave", keys=1)
CORRECT_TIME = _load("correct_time", keys=1)
SAVE_OWNERS = _load("save_owners", keys=1)
CREATE_CRAWL = _load("create_crawl", keys=1)
SAVE_SETTINGS = _load("save_settings", keys=1)
IDENTIFY_SHARD = _load("identify_shard", keys=2)
PUSH = _load("push", keys=2, parts=PUSH_PARTS)
LEASE = _load("lease", keys=2, parts=LEASE_PARTS)
ADD_TO_OUTBOX = _load("add_to_outbox", keys=2, parts=("lost_data",))
REMOVE_FROM_OUTBOX = _load("remove_from_outbox", keys=2, parts=("lost_data",))
SETTLE = _load("settle", keys=2, parts=SETTLE_PARTS)
PACK = _load("pack", keys=2, parts=("lost_data",))
UNPACK = _load("unpack", keys=2, parts=("lost_data", "count_merged"))
RELEASE = _load("release", keys=2, parts=("lost_data",))
MARK_SENT = _load("mark_sent", keys=2, parts=("lost_data",))
REVOKE = _load("revoke", keys=5, parts=("read_owner", "lost_writes"))
RESTORE = _load("restore", keys=2, parts=("lost_data", "dead_letter"))
RESTORE_VISITS = _load("restore_visits", keys=2, parts=("lost_data", "forgotten", "page_records", "known_pages"))
RESERVE_BUDGET = _load("reserve_budget", keys=2)
RECOUNT = _load("recount", keys=1)
SURVEY = _load("survey", keys=2)
REQUEUE = _load("requeue", keys=5, parts=("lost_data",))
RETRY_NOW = _load("retry_now", keys=4)
REFRESH = _load("refresh", keys=2, parts=("lost_data", "page_records"))
SAVE_ROBOTS = _load("save_robots", keys=1)
RATE_LIMIT = _load("rate_limit", keys=1)
TAKE_TURN = _load("take_turn", keys=2)
RESERVE = _load("reserve", keys=2, parts=("lost_data",))
END_RESERVATION = _load("end_reservation", keys=2)
OPEN_LEASE = _load("open_lease", keys=1)
KEEP_TYPES = _load("keep_types", keys=1)
SHARED_VALUE = _load("shared_value", keys=1)
BEGIN_RESHARD = _load("begin_reshard", keys=1)
CANCEL_RESHARD = _load("cancel_reshard", keys=1)
REPORT_RESHARD = _load("report_reshard", keys=1)
FREEZE_SHARD = _load(
    "freeze_shard",
    keys=2,
    parts=("set_aside", "lost_writes", "first_ms", "dead_letter", "count_merged", "expire_leases"),
)
ADD_COPIED = _load("add_copied", keys=2, parts=("lost_data",))
COPY_KEYS = _load("copy_keys", keys=3, parts=("lost_data",))
SWITCH_LAYOUT = _load("switch_layout", keys=1)
END_RESHARD = _load("end_reshard", keys=1)
REMOVE_COPIED = _load("remove_copied", keys=2, parts=("lost_data",))
FORGET_DOMAIN = _load("forget_domain", keys=2, parts=("lost_data", "forgotten"))
FORGET_URLS = _load("forget_urls", keys=2, parts=("page_records",))
FORGET_VIA = _load("forget_via", keys=2, parts=("lost_data", "count_merged"))

ALL = tuple(value for value in vars().values() if isinstance(value, Script))


def _names(parts: tuple[str | Rare, ...]) -> Iterator[str]:
    for part in parts:
        yield from (part,) if isinstance(part, str) else part.files


PARTS = frozenset(_names((*LEASE_PARTS, *SETTLE_PARTS, *PUSH_PARTS)))


Argument = bytes | str | int | float
Reply = Any
"""A reply of Redis: bytes, int, None, or lists of these."""

_NONE = 0
_KEY_PLACES: dict[Argument, int] = {
    **dict.fromkeys(("INFO", "CONFIG", "SCAN", "ECHO", "CLIENT", "SCRIPT", "REPLICAOF", "SHUTDOWN"), _NONE),
    **dict.fromkeys(("MEMORY", "OBJECT"), 2),
}
"""Where a command has its key, if it is not the second word."""


class Call(msgspec.Struct, frozen=True):
    """One command of a batch. If `script` is set, it is called with `keys` and `arguments`; otherwise `arguments` are
    the command. `acks`: how many replicas of its node must have received what the call has written, the same number for
    all calls of a batch. `at`: a key of the node that carries out a command without a key."""

    arguments: Sequence[Argument]
    keys: Sequence[str] = ()
    script: Script | None = None
    acks: int = 0
    at: str = ""

    @property
    def key(self) -> str:
        """The key that tells which node carries out the call, or "" if any node can."""
        if self.script is not None:
            return self.keys[0]
        if self.at:
            return self.at
        place = _KEY_PLACES.get(self.arguments[0], 1)
        return str(self.arguments[place]) if 0 < place < len(self.arguments) else ""


def command(*words: Argument) -> Call:
    """A plain command, such as ``command("ZCARD", keys.due)``. Its second word must be its key."""
    return Call(words)


def script_call(script: Script, keys: Sequence[str], *arguments: Argument) -> Call:
    """A script call."""
    return Call(arguments, keys, script)


_packed: Callable[[tuple[Argument, ...]], bytes] = pack_command  # type: ignore[assignment]  # annotated as a tuple of one


GUARD = "redis.call('EXISTS', KEYS[1] .. ':guard')\n"
"""The first line of a script on a cluster. Nobody creates this key. A node that hands over its slot to another answers that
it may be there, which ends the script before it has changed anything."""


def packed(calls: Sequence[Call], guarded: bool = False) -> bytes:
    """`calls` as they are sent, scripts by their SHA-1. `guarded`: as scripts with `GUARD`."""
    return b"".join([_packed(_words(call, guarded)) for call in calls])


def _words(call: Call, guarded: bool) -> tuple[Argument, ...]:
    if call.script is None:
        return tuple(call.arguments)
    sha = _guarded_sha(call.script) if guarded else call.script.sha
    return ("EVALSHA", sha, len(call.keys), *call.keys, *call.arguments)


@cache
def _guarded_sha(script: Script) -> bytes:
    return hashlib.sha1((GUARD + script.source).encode()).hexdigest().encode()


def packed_by_source(call: Call, guarded: bool = False) -> bytes:
    """A script call as it is sent to a server that does not know the script."""
    assert call.script is not None
    source = GUARD + call.script.source if guarded else call.script.source
    return _packed(("EVAL", source, len(call.keys), *call.keys, *call.arguments))


def packed_words(*words: Argument) -> bytes:
    """One command as it is sent."""
    return _packed(words)
