"""What keeps a replica from crawling at the moment, for its health record."""

from __future__ import annotations

from crawler.errors import FailureKind
from crawler.events import Event, GroupCommitted, OwnFailure, SinkBlocked

_AWAITED = {FailureKind.OUR_DNS: "the DNS", FailureKind.MACHINE: "its machine", FailureKind.PROXY: "its proxy"}


class Obstacles:
    """Remembers a full disk until a write succeeds, and a failure that is ours until a result is written. `observe` is an
    event listener."""

    def __init__(self) -> None:
        self._sink = self._own = ""

    def observe(self, event: Event) -> None:
        match event:
            case SinkBlocked(error):
                self._sink = error
            case OwnFailure(kind, error):
                self._own = f"waits for {_AWAITED[kind]}: {error}"
            case GroupCommitted(results):
                self._sink = ""
                if results:  # and not only leases that were returned
                    self._own = ""
            case _:
                pass

    def describe(self, waits_for_permits: bool) -> str:
        """Return the obstacle as a phrase, "" if there is none. `waits_for_permits`: nothing is in flight because other
        replicas hold the last permits of the page limit."""
        if self._sink:
            return f"cannot write output: {self._sink}"
        return self._own or ("waits for page permits, which other replicas hold" if waits_for_permits else "")
