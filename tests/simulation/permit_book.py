"""What the referee knows of the page budget: the permits that each replica holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from frontier.store import Call, Reply
from tests.simulation.history import History


@dataclass(slots=True)
class Permits:
    """What a replica holds of the page budget, by its call with the highest `number`."""

    number: int
    permits: int
    until_ms: int


class PermitBook:
    """`check(holds, invariant, message, about)` raises Breach unless `holds`."""

    def __init__(self, history: History, check: Callable[[bool, str, str, str], None]) -> None:
        self._history = history
        self._check = check
        self._permits: dict[str, Permits] = {}
        self._lapsed_ms = 0  # permits that expired before may have been withdrawn

    def reserve(self, replica: str, call: Call, reply: Reply) -> None:
        """A call that arrives after a later one changes nothing, and no call takes permits away that its replica keeps."""
        self._history.note(replica, "reserve", (call.arguments, reply))
        number, keep, wanted, until_ms = (int(call.arguments[at]) for at in (1, 4, 5, 8))
        self._lapsed_ms = max(self._lapsed_ms, int(call.arguments[9]))
        last = self._permits.get(replica)
        if last is None or number > last.number:
            self._check(int(reply[1]) >= keep, "limit", f"{replica} keeps {keep} permits, not {reply}", replica)
            self._permits[replica] = Permits(number, int(reply[1]), until_ms)
        elif last.until_ms >= self._lapsed_ms:
            message = f"call {number} of {replica} changes its permits from {last} to {reply}"
            self._check(int(reply[1]) == last.permits, "limit", message, replica)
        if wanted < 0:
            del self._permits[replica]
