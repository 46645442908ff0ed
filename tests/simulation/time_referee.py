"""Checks what replicas believe of crawl time, by the times in their calls."""

from __future__ import annotations

from collections.abc import Callable

from frontier.scripts import Call

TIME_AT = {"push": 1, "lease": 5, "settle": 2}
"""Script -> which of its arguments is crawl time, as its caller knows it."""

BEHIND_S = 40.0
"""By how much a replica's crawl time may be behind at most: each correction after a step of the server's clock may put it
back by the errors of two readings, of up to two timeouts each. Steps are longer."""


class TimeReferee:
    """`server_ms`: crawl time without any error. `slack_ms`: by how much replicas may be ahead of it. `check(holds,
    invariant, message, about)` raises Breach unless `holds`."""

    def __init__(
        self, server_ms: Callable[[], float], slack_ms: float, check: Callable[[bool, str, str, str], None]
    ) -> None:
        self._server_ms = server_ms
        self._slack_ms = slack_ms
        self._check = check
        self._follows_step = False

    def follow_step(self) -> None:
        """Record that all who knew crawl time have ended before they noticed a step of the server's clock. Those who are
        left trust the server's clock in the end, as `frontier.clock` says."""
        self._follows_step = True

    def observe(self, replica: str, call: Call) -> None:
        """Check the time in a call that the server ran."""
        told_ms = self._told_ms(call)
        if told_ms is not None:
            ahead_ms = told_ms - self._server_ms()
            message = f"{replica} believes that crawl time is {ahead_ms:.0f} ms ahead of where it is"
            self._check(ahead_ms <= self._slack_ms, "I2", message, replica)

    def observe_sending(self, replica: str, call: Call) -> None:
        """Check the time in a call when it is sent."""
        told_ms = self._told_ms(call)
        if told_ms is not None:
            behind_ms = self._server_ms() - told_ms
            message = f"{replica} believes that crawl time is {behind_ms:.0f} ms behind where it is"
            self._check(behind_ms <= BEHIND_S * 1000, "I8", message, replica)

    def _told_ms(self, call: Call) -> int | None:
        name = call.script.name if call.script else ""
        return None if self._follows_step or name not in TIME_AT else int(call.arguments[TIME_AT[name]])
