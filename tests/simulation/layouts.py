"""The referee of reshards: knows which shards the crawl uses, and whether they are open, frozen or being filled.

It sees each call before the ledger does, and keeps those from it that a shard refused. Of the calls that the ledger keeps
account of, a shard in use may refuse none, and one that is not may carry out none but `revoke`, which asks for its past.

It also sees which command has begun the reshard. Another one may begin only if that one has reported nothing for `BUSY_MS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from frontier.crawls import Crawl
from frontier.keys import CrawlKeys
from frontier.scripts import (
    BEGIN_RESHARD,
    CANCEL_RESHARD,
    END_RESHARD,
    FREEZE_SHARD,
    IDENTIFY_SHARD,
    REPORT_RESHARD,
    REVOKE,
    SWITCH_LAYOUT,
    Call,
    Reply,
)
from tests.simulation.arguments import shard_tag
from tests.simulation.history import Breach, History
from tests.simulation.ledger import Ledger

LOST = [b"lost"]
"""What a script replies if a shard has not the identity that its caller expects."""

BUSY_MS = 10_000
"""As in `lua/begin_reshard.lua`."""


class Layouts:
    """`crawl`: as it was created; then with the layout in use. `on_switch` is told the number of shards of a new one."""

    def __init__(self, history: History, ledger: Ledger, crawl: Crawl, on_switch: Callable[[int], None]) -> None:
        self._history = history
        self._ledger = ledger
        self.crawl = self._first = crawl
        self._on_switch = on_switch
        self._identities: dict[str, str] = {}  # by hash tag of a shard
        self._working: tuple[str, int] | None = None  # the command that has begun the reshard, and when it last said so

    @property
    def keys(self) -> CrawlKeys:
        """The keys of the layout in use."""
        return self.crawl.keys

    def rebuild(self, kept: Sequence[tuple[str, Call, Reply]]) -> None:
        """Forget what the server has lost: only the calls (replica, call, reply) in `kept` count, which were checked."""
        self.crawl = self._first
        self._identities.clear()
        self._working = None
        self._ledger.rebuild(kept, self.observe)

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Check one call that the server ran, and pass it on to the ledger."""
        if call.script in (BEGIN_RESHARD, REPORT_RESHARD, CANCEL_RESHARD, END_RESHARD):
            self._note_command(replica, call, reply)
            return
        if call.script is SWITCH_LAYOUT:
            if reply[0] == b"switched":
                self._switch(*map(str, call.arguments[:3]))
            return
        if call.arguments[0] == "UNLINK" and call.key.endswith("}:stats"):
            self._identities.pop(shard_tag(call.key), None)
            self._ledger.shards.pop(shard_tag(call.key), None)
        if call.script is None or call.script.name not in self._ledger.scripts | {FREEZE_SHARD.name}:
            return
        tag = shard_tag(call.keys[0])
        if call.script is IDENTIFY_SHARD:
            if reply[0] == b"identified":
                self._identify(tag, call)
        elif call.script is FREEZE_SHARD:
            if reply[0] == b"frozen":
                self._history.note(replica, "freeze", tag)
                self._identities[tag] = str(call.arguments[1])
                self._ledger.end_leases(tag)
        elif self._is_let_through(replica, tag, call, reply):
            self._ledger.observe(replica, call, reply)

    def _note_command(self, replica: str, call: Call, reply: Reply) -> None:
        working, words = self._working, call.arguments
        if reply[0] == b"begun":
            command, ms = str(words[2]), int(words[3])
            if working is not None and command != working[0] and abs(ms - working[1]) < BUSY_MS:
                raise Breach("claim", f"the command before has reported {ms - working[1]} ms before", replica)
            self._working = command, ms
        elif reply[0] == b"reported":
            *_, reported_ms, command = str(words[0]).split()
            if working is not None and command == working[0]:
                self._working = command, int(reported_ms)
        elif call.script in (CANCEL_RESHARD, END_RESHARD) and reply[0] != b"other":
            self._working = None

    def _identify(self, tag: str, call: Call) -> None:
        identity, run = str(call.arguments[0]), str(call.arguments[2])
        if tag not in self._identities:
            self._ledger.shards[tag].run = run
        self._identities[tag] = identity

    def _is_let_through(self, replica: str, tag: str, call: Call, reply: Reply) -> bool:
        script = call.script
        assert script is not None
        if not is_of_shard(tag):
            return True
        is_open = self._identities.get(tag) == self.crawl.keys.identity
        is_refused = reply == LOST
        if is_open == is_refused and not (script is REVOKE and not is_refused):
            raise Breach("I1", f"{tag} answers {reply} to {script.name}; it has {self._identities.get(tag)}", tag)
        if is_refused:
            self._history.note(replica, "refused", (script.name, tag))
        return not is_refused

    def _switch(self, tokens: str, shards: str, last_token: str) -> None:
        last_tokens = (*map(int, tokens.split()), int(last_token))
        self.crawl = msgspec.structs.replace(self.crawl, shards=int(shards), last_tokens=last_tokens)
        self._history.note("operator", "switch", self.crawl.keys)
        self._on_switch(int(shards))
        self._ledger.move([of.base[:-1] for of in self.crawl.keys.shards], int(last_token))


def is_of_shard(tag: str) -> bool:
    """Whether the hash tag is that of a shard, and not of keys that all replicas share."""
    return ":" in tag
