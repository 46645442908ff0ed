"""What keeps a replica from crawling at the moment, for its health record."""

from __future__ import annotations

from crawler.events import Event, GroupCommitted, ProxyFailed, SinkBlocked


class Obstacles:
    """Remembers a full disk, and a failure of the operator's proxy, until a write succeeds. `observe` is an event
    listener."""

    def __init__(self) -> None:
        self._sink = self._proxy = ""

    def observe(self, event: Event) -> None:
        match event:
            case SinkBlocked(error):
                self._sink = error
            case ProxyFailed(error):
                self._proxy = error
            case GroupCommitted():
                self._sink = self._proxy = ""
            case _:
                pass

    def describe(self, waits_for_permits: bool) -> str:
        """Return the obstacle as a phrase, "" if there is none. `waits_for_permits`: nothing is in flight because other
        replicas hold the last permits of the page limit."""
        if self._sink:
            return f"cannot write output: {self._sink}"
        if self._proxy:
            return f"waits for its proxy: {self._proxy}"
        return "waits for page permits, which other replicas hold" if waits_for_permits else ""
