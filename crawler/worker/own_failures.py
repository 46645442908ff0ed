"""What happens after a failure that is ours: of the DNS, of this machine or of the operator's proxy. The domain waits, and
none of its URLs loses a try."""

from __future__ import annotations

from crawler.defects import in_words
from crawler.errors import FailureKind, is_machines_fault
from crawler.events import OwnFailure
from crawler.worker.address_limit import return_until
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime

FIRST_PAUSE_S, LONGEST_PAUSE_S = 10.0, 600.0
"""The pause is as long as the failures have lasted, so it doubles: an outage costs few requests, and no domain waits for
much longer than the outage."""

JITTER = 0.25


class OwnFailures:
    """Has domains wait after failures that are ours."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._since: dict[FailureKind, float] = {}  # when the failures began, monotonic seconds

    def pause(self, leased: LeasedDomain, kind: FailureKind, detail: str) -> None:
        """Have `leased` wait after a failure of `kind`, one of `outcomes.OURS`. Its lease is returned."""
        now = self._runtime.now()
        lasted_s = now - self._since.setdefault(kind, now)
        pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, lasted_s)) * self._runtime.rng.uniform(1 - JITTER, 1 + JITTER)
        return_until(leased, self._runtime, max(leased.next_at, now + pause_s))
        self._runtime.events.emit(OwnFailure(kind, detail))

    def pauses_for(self, leased: LeasedDomain, error: Exception) -> bool:
        """Return whether this machine lacks what `error` says. `leased` then has to wait."""
        if is_machines_fault(error):
            self.pause(leased, FailureKind.MACHINE, in_words(error))
            return True
        return False

    def end(self) -> None:
        """A connection could be opened, so the next failure begins another row of them."""
        self._since.clear()
