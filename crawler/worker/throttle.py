"""When a visit's domain may be asked again, and its URLs tried again: delays and backoff, applied to visits."""

from __future__ import annotations

import random
from math import ceil

import msgspec

from crawler.events import BackedOff, Events
from crawler.page import Exchange
from crawler.worker.outcomes import Verdict
from crawler.worker.visit import Visit
from frontier.clock import Clock, ServerClock
from frontier.control import Control
from frontier.entries import Entry
from politeness.backoff import after_failure, after_success, is_given_up, parse_retry_after
from politeness.delay import RestPolicy, delay_ms, is_above_cap
from politeness.robots_cache import KnownRobots


class Rests:
    """Applies the policy, and what an operator has said of single domains, to visits."""

    def __init__(
        self,
        policy: RestPolicy,
        control: Control,
        events: Events,
        clocks: tuple[Clock, ServerClock],
        rng: random.Random,
    ) -> None:
        self.policy = policy
        self._control = control
        self._events = events
        self._clock, self._server_clock = clocks
        self._rng = rng

    def begin(self, visit: Visit, response_s: float, known: KnownRobots | None) -> None:
        """A response that took `response_s` seconds has just ended: the domain rests for its delay."""
        ended_at = self._clock.monotonic()
        visit.delay_ms = self._delay_ms(visit, known, response_s)
        visit.rest(ended_at + visit.delay_ms / 1000, ended_at)

    def goes_on(self, visit: Visit, known: KnownRobots) -> bool:
        """Whether the origin asks for a longer delay than the one that its domain has just waited; then the visit's next
        turn is set to its end."""
        due = visit.ended_at + self._delay_ms(visit, known, 0.0) / 1000
        if self._clock.monotonic() >= due:
            return False
        visit.next_at = due
        return True

    def _delay_ms(self, visit: Visit, known: KnownRobots | None, response_s: float) -> int:
        rules = known.rules if known else None
        policy = self.policy.delay
        told_s = self._control.rules.delays.get(visit.domain)
        if told_s is not None:
            share = policy.response_share if told_s else 0.0  # no delay at all is for one's own site
            policy = msgspec.structs.replace(policy, min_delay_s=told_s, response_share=share)
        # Not by its truth: a file may ask for a delay and have no rule.
        asked = (None, None) if rules is None else (rules.crawl_delay, rules.request_rate)
        return delay_ms(policy, *asked, response_s)

    def lanes(self, visit: Visit, known: KnownRobots) -> int:
        """How many requests of the domain may be in flight at once: several only where there is no delay, by settings,
        operator or robots.txt, and where the domain has no failures that are not forgiven yet."""
        policy = self.policy
        if policy.parallel == 1 or visit.backoff.failures or self._delay_ms(visit, known, 0.0):
            return 1
        return policy.parallel

    def back_off(self, visit: Visit, verdict: Verdict, exchange: Exchange | None) -> None:
        """Keep the domain's backoff. A domain that must rest long gives its lease back."""
        now_ms = self._server_clock.now_ms()
        before = visit.backoff
        rests_already = visit.closing and before.until_ms > now_ms  # this was in flight when the rest began
        if not verdict.backs_off:
            if not rests_already:
                visit.backoff = after_success(before, self.policy.backoff, now_ms)
            return
        if rests_already:  # requests that failed together are one failure
            before = msgspec.structs.replace(before, failures=before.failures - 1)
        retry_after = exchange.header(b"retry-after") if exchange else None
        wait_s = parse_retry_after(retry_after, now_ms / 1000) if retry_after else None
        after = after_failure(
            before,
            self.policy.backoff,
            now_ms,
            None if wait_s is None else ceil(wait_s * 1000),
            self._rng.random(),
            verdict.reason,
        )
        visit.backoff = max(visit.backoff, after, key=lambda state: state.until_ms) if rests_already else after
        rest_s = (visit.backoff.until_ms - now_ms) / 1000
        visit.next_at = max(visit.next_at, self._clock.monotonic() + rest_s)
        visit.closing = True
        self._events.emit(BackedOff(verdict.reason, rest_s))

    def is_blocked(self, domain: str) -> bool:
        """Whether an operator has said that `domain` gets no request."""
        return domain in self._control.rules.blocked

    def asks_too_much(self, known: KnownRobots) -> bool:
        """Whether the crawl leaves the origin out, because its robots.txt asks for more patience than the crawl has."""
        rules = known.rules
        return rules is not None and is_above_cap(self.policy.delay, rules.crawl_delay, rules.request_rate)

    def has_given_up(self, visit: Visit) -> bool:
        """Whether the domain has failed so long that this crawl asks it no more."""
        return is_given_up(visit.backoff, self.policy.backoff)

    def retry_at_ms(self, visit: Visit, entry: Entry, verdict: Verdict) -> int:
        """When `entry` may be tried again, in server time: with its domain if that backs off, else on the same schedule
        by its own tries."""
        if verdict.backs_off:
            return visit.backoff.until_ms
        policy = self.policy.backoff
        rest_s = min(policy.max_s, policy.base_s * 2**entry.tries) * (1 + policy.jitter * self._rng.uniform(-1, 1))
        return self._server_clock.now_ms() + int(rest_s * 1000)
