"""The latest failures of a replica: URLs that brought no page, with the reason."""

from __future__ import annotations

from collections import deque

from crawler.events import Event, PageSettled
from crawler.observe.health_record import Failure
from crawler.page import Outcome

KEPT = 10
LONGEST_URL = 200
_FAILED = (Outcome.RETRY, Outcome.DEAD)


class RecentFailures:
    """The last `KEPT` failures of a replica. `observe` is an event listener."""

    def __init__(self) -> None:
        self._kept: deque[Failure] = deque(maxlen=KEPT)

    @property
    def latest(self) -> list[Failure]:
        """The failures, newest first."""
        return list(reversed(self._kept))

    def observe(self, event: Event) -> None:
        if isinstance(event, PageSettled) and event.page.outcome in _FAILED:
            page = event.page
            url = page.url if len(page.url) <= LONGEST_URL else page.url[: LONGEST_URL - 1] + "…"
            self._kept.append(Failure(int(page.settled_at * 1000), url, page.outcome, page.reason))
