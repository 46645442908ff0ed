"""Delays and backoff: when a leased domain may be requested again, and when its URLs may be retried."""

from __future__ import annotations

from math import ceil

import msgspec

from crawler.events import BackedOff
from crawler.page import Exchange
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.outcomes import UrlResult
from crawler.worker.runtime import Runtime
from frontier.control import Control
from frontier.entries import Entry
from politeness.backoff import BackoffState, after_failure, after_success, is_given_up, parse_retry_after
from politeness.delay import delay_ms, is_above_cap, with_set_delay
from politeness.robots_cache import OriginRobots


class Throttle:
    """Applies the politeness policy, and an operator's rules for single domains, to leased domains."""

    def __init__(self, runtime: Runtime, control: Control) -> None:
        self._runtime = runtime
        self._control = control

    def start_delay(self, leased: LeasedDomain, response_s: float, known: OriginRobots | None) -> None:
        """Start the domain's delay after a response that took `response_s` seconds and has just ended. `known`: the
        robots.txt that may set the delay."""
        leased.start_delay(self._delay_ms(leased, known, response_s), self._runtime.now())

    def prolong_delay(self, leased: LeasedDomain, fetched: OriginRobots) -> None:
        """Let the domain wait as the file that was just `fetched` asks for. The lease may be released before its next
        turn."""
        leased.start_delay(max(leased.delay_ms, self._delay_ms(leased, fetched, 0.0)), leased.ended_at)

    def put_off_if_early(self, leased: LeasedDomain, known: OriginRobots) -> bool:
        """Put off the domain's next turn if the origin's robots.txt asks for a longer delay than it has waited. Returns
        whether it did. Another replica may have fetched the file, and died."""
        delay_s = self._delay_ms(leased, known, 0.0) / 1000
        if not delay_s:
            return False
        due = max(leased.ended_at, self._runtime.monotonic(known.record.fetched_at_ms)) + delay_s
        if self._runtime.now() >= due:
            return False
        leased.wait_until(due)
        return True

    def _delay_ms(self, leased: LeasedDomain, known: OriginRobots | None, response_s: float) -> int:
        set_delay_s = self._control.rules.delays.get(leased.domain)
        policy = with_set_delay(self._runtime.policy.throttle.delay, set_delay_s)
        # Compared with None because a file may ask for a delay and have no rules, and is then false.
        if known is None or known.rules is None:
            return delay_ms(policy, None, None, response_s)
        return delay_ms(policy, known.rules.crawl_delay, known.rules.request_rate, response_s)

    def concurrency(self, leased: LeasedDomain, known: OriginRobots) -> int:
        """Return how many requests to the domain may be in flight at once. More than one is allowed only if neither
        settings, operator nor robots.txt set a delay, and the domain's backoff counts no failures."""
        policy = self._runtime.policy.throttle
        if policy.parallel == 1 or leased.backoff.failures or self._delay_ms(leased, known, 0.0):
            return 1
        return policy.parallel

    def update_backoff(self, leased: LeasedDomain, result: UrlResult, exchange: Exchange | None) -> None:
        """Update the domain's backoff after `result`. If the domain has to back off, its lease is returned. `exchange`:
        the response, None without one."""
        if not result.backs_off and not leased.backoff.failures:
            return
        now_ms = self._runtime.server_clock.now_ms()
        before, policy = leased.backoff, self._runtime.policy.throttle.backoff
        is_backing_off = (
            leased.closing and before.until_ms > now_ms
        )  # this request was in flight when the backoff began
        if not result.backs_off:
            if not is_backing_off:
                leased.set_backoff(after_success(before, policy, now_ms))
            return
        if is_backing_off:  # requests that failed together are one failure
            before = msgspec.structs.replace(before, failures=before.failures - 1)
        after = backoff_after(self._runtime, before, result, exchange)
        leased.set_backoff(max(leased.backoff, after, key=lambda state: state.until_ms) if is_backing_off else after)
        delay_s = (leased.backoff.until_ms - now_ms) / 1000
        leased.wait_at_least_until(self._runtime.now() + delay_s)
        leased.close()
        self._runtime.events.emit(BackedOff(result.reason, delay_s))

    def is_blocked(self, domain: str) -> bool:
        """Return whether an operator has blocked `domain`, or had it forgotten."""
        return self._control.rules.is_blocked(domain)

    def exceeds_cap(self, known: OriginRobots) -> bool:
        """Return whether the robots.txt asks for a delay above the crawl's cap. The crawl then skips the origin."""
        rules = known.rules
        return rules is not None and is_above_cap(
            self._runtime.policy.throttle.delay, rules.crawl_delay, rules.request_rate
        )

    def has_given_up(self, leased: LeasedDomain) -> bool:
        """Return whether the domain has failed so often that the crawl makes no more requests to it."""
        return leased.backoff.failures > 0 and is_given_up(leased.backoff, self._runtime.policy.throttle.backoff)

    def retry_at_ms(self, leased: LeasedDomain, entry: Entry, result: UrlResult) -> int:
        """Return when `entry` may be tried again, in server milliseconds. If the domain backs off, this is the end of the
        backoff; otherwise the delay grows with the tries of the URL itself."""
        if result.backs_off:
            return leased.backoff.until_ms
        policy, rng = self._runtime.policy.throttle.backoff, self._runtime.rng
        delay_s = min(policy.max_s, policy.base_s * 2**entry.tries) * (1 + policy.jitter * rng.uniform(-1, 1))
        return self._runtime.server_clock.now_ms() + int(delay_s * 1000)


def backoff_after(runtime: Runtime, before: BackoffState, result: UrlResult, exchange: Exchange | None) -> BackoffState:
    """Return the state that follows `before` after `result`, a failure. `exchange`: the response, None without one."""
    now_ms, policy = runtime.server_clock.now_ms(), runtime.policy.throttle.backoff
    header = exchange.header(b"retry-after") if exchange else None
    wait_s = parse_retry_after(header, now_ms / 1000) if header else None
    retry_after_ms = None if wait_s is None else ceil(wait_s * 1000)
    return after_failure(before, policy, now_ms, retry_after_ms, runtime.rng.random(), result.reason)
