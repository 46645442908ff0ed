"""Holds what is said of the end of the crawl against the ledger (I7).

Nobody can read all shards at one moment, so "the crawl has ended" is right if nothing was open at any one moment while
that was found out. More may be open by the time of the answer: a replica that was suspended, or that repeats its last
writes, puts links into shards and outboxes though the leases of their pages are long lost. They are links of pages that
were settled by others, so most of them change nothing there. A link that did not count when its page was fetched again
may count by then, and is queued after the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from frontier.scripts import Call, Reply
from tests.simulation.history import Breach
from tests.simulation.ledger import Ledger


class Question(NamedTuple):
    """Whether the crawl has ended, asked at `at_ms`. `is_over`, `opened`: whether nothing was open then, and what ever
    was."""

    at_ms: float
    is_over: bool
    opened: int


class EndJudge:
    """Its `observe` is to be told of each call before the `ledger` is."""

    def __init__(self, ledger: Ledger, now_ms: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._over_ms: float | None = None  # nothing was open until then

    def forget(self) -> None:
        """Record that the server has lost writes, so that what was settled may be open."""
        self._over_ms = None

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Note whether nothing was open until this call."""
        if self._is_over:
            self._over_ms = self._now_ms()

    @property
    def _is_over(self) -> bool:
        """Whether nothing is open, with the seeds pushed."""
        return bool(self._ledger.accepted) and not self._ledger.open

    def ask(self) -> Question:
        """What is known when somebody begins to find out whether the crawl has ended."""
        return Question(self._now_ms(), self._is_over, self._ledger.opened)

    def check_answer(self, question: Question, has_ended: bool, replica: str) -> None:
        """Raise Breach unless `has_ended` is a right answer to `question`."""
        if has_ended:
            self._check_over(question.at_ms, replica)
        elif question.is_over and question.opened == self._ledger.opened:
            raise Breach("I7", "the crawl is over and is said to go on", replica)

    def check_report(self, replica: str) -> None:
        """Raise Breach if the engine of `replica` ends its crawl although something was open at all times."""
        self._check_over(0.0, replica)

    def _check_over(self, since_ms: float, replica: str) -> None:
        was_over = self._over_ms is not None and self._over_ms >= since_ms
        if not (self._is_over or was_over):
            raise Breach("I7", f"the crawl is said to be over with {self._ledger.open} URLs open", replica)
