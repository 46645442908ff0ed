"""Checks that queues are packed and unpacked without a loss."""

from __future__ import annotations

from collections.abc import Callable

from frontier.entries import parse_entry
from frontier.packing import rows_of
from frontier.scripts import Call, Reply
from tests.simulation.arguments import bytes_of
from tests.simulation.domain_books import Domain
from tests.simulation.history import History


class PackingReferee:
    """`domain(name, key)` returns the referee's record of a domain. `check(holds, invariant, message, about)` raises Breach
    unless `holds`."""

    def __init__(
        self,
        history: History,
        domain: Callable[[str, str], Domain],
        check: Callable[[bool, str, str, str], None],
    ) -> None:
        self._history = history
        self._domain = domain
        self._check = check

    def pack(self, replica: str, call: Call, reply: Reply) -> None:
        domain = self._domain(str(call.arguments[1]), call.keys[0])
        urls = {parse_entry(raw.decode(), domain.name, 0.0).url for _, raw in rows_of(bytes_of(call.arguments[6]))}
        self._history.note(replica, "pack", (domain.name, sorted(urls), reply))
        if reply[0] == b"packed":
            strange = urls - domain.queued.keys()
            self._check(not strange, "I1", f"packed what was not queued: {strange}", domain.name)
            number = int(call.arguments[2])
            self._check(len(urls - domain.packed) == number, "I1", f"{number} are packed, not {urls}", domain.name)
            domain.packed |= urls

    def unpack(self, replica: str, call: Call, reply: Reply) -> None:
        domain = self._domain(str(call.arguments[1]), call.keys[0])
        raws = [bytes_of(raw).decode() for raw in call.arguments[7::2]]
        urls = {parse_entry(raw, domain.name, 0.0).url for raw in raws}
        self._history.note(replica, "unpack", (domain.name, sorted(urls), reply))
        if reply[0] == b"unpacked":
            strange = urls - domain.packed
            self._check(not strange, "I1", f"unpacked what was not packed: {strange}", domain.name)
            domain.packed -= urls
