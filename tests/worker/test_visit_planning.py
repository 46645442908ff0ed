"""A domain whose delay does not allow all visits in time is visited where that gains most."""

from __future__ import annotations

import heapq
import math
import random
import re

import msgspec

from crawler.page import Exchange, Outcome, Page
from crawler.scope.freshness import Observed, interval_s
from crawler.scope.next_visit import parse_rules, visit_priority
from crawler.worker.visit_planning import MOST_SITES, SiteGains, planned
from frontier.entries import Entry
from frontier.known_pages import rest_of_record
from frontier.settle import SettledUrl

HOUR, DAY = 3_600.0, 86_400.0
AT = 1.7e9
GAIN = HOUR / 2


def run(pages: int, turn_s: float, days: int) -> tuple[float, float, SiteGains]:
    """Visit pages of one domain that change at known rates, one in `turn_s` seconds, in the order in which they are due.
    Returns the mean lateness in the last third, relative to the interval, and the gain of the visits then."""
    rng, gains = random.Random(3), SiteGains()
    rates = [math.exp(rng.gauss(math.log(1 / DAY), 1.5)) for _ in range(pages)]
    seen = [Observed(30, 15, 15 * math.log(2) / rate, 15 * math.log(2) / rate) for rate in rates]
    due = [(rng.uniform(0, DAY), number, 0.0) for number in range(pages)]
    heapq.heapify(due)
    at, late, gained = 0.0, [0.0], [0.0]
    while at < days * DAY:
        due_at, number, last_at = heapq.heappop(due)
        at = max(at + turn_s, due_at)
        rate = Observed(*seen[number])
        gain_s = _gain_s(rates[number], at - last_at)
        if HOUR < due_at - last_at < 30 * DAY and last_at:
            gains.note("a.test", gain_s, GAIN)
        if at > days * DAY * 2 / 3:
            late.append((at - due_at) / max(HOUR, due_at - last_at))
            gained += [gain_s] if due_at - last_at > HOUR else []
        wait_s = interval_s(rate, max(GAIN, gains.least("a.test")), HOUR, 30 * DAY)
        heapq.heappush(due, (at + wait_s, number, at))
    return sum(late) / len(late), sum(gained) / len(gained), gains


def _gain_s(rate: float, after_s: float) -> float:
    return (1 - (1 + rate * after_s) * math.exp(-rate * after_s)) / rate


def test_visits_are_planned_for_what_the_delay_allows() -> None:
    late, _, gains = run(pages=300, turn_s=900.0, days=60)
    assert gains.least("a.test") > 4 * GAIN
    assert late < 0.1


def test_a_domain_with_room_is_asked_for_no_more_than_its_rule() -> None:
    late, gained, gains = run(pages=300, turn_s=1.0, days=10)
    assert gains.least("a.test") < 1.1 * GAIN and gained < 1.2 * GAIN and late < 0.01


def test_what_is_known_fades_when_there_is_room_again() -> None:
    gains = SiteGains()
    for _ in range(200):
        gains.note("a.test", 10 * GAIN, GAIN)
    for _ in range(10_000):
        gains.note("a.test", gains.least("a.test"), GAIN)
    assert gains.least("a.test") <= GAIN


def test_visits_that_wait_are_made_in_the_order_in_which_they_were_due() -> None:
    rules, due = parse_rules(["match=1$ every=2h", "every=1h"]), []
    for number in range(4):
        entry = Entry(f"https://a.test/{number}", "a.test", priority=-float(number))
        page = Page(
            entry.url, "a.test", 0, Outcome.DONE, "ok", 1.7e9, exchange=exchange(entry.url, 1.7e9 + 60 * number)
        )
        settled, _ = planned(rules, SettledUrl(entry, "done", "200"), page, SiteGains())
        priority = re.search(rb" \w{3}(-\d+) ", bytes(settled.follow_up))  # of the record of the page
        assert priority is not None
        due.append((-int(priority[1]), number))
    assert [number for _, number in sorted(due)] == [0, 2, 3, 1]


def test_a_page_says_what_is_stored_of_its_visits() -> None:
    """Also at the second visit, which may be the last one; without rules, it is the last."""
    rules, entry = parse_rules(["every=1h"]), Entry("https://a.test/", "a.test", depth=2)
    page = Page(entry.url, "a.test", 2, Outcome.DONE, "ok", AT, exchange=exchange(entry.url, AT + 0.3))
    settled, first = planned(rules, SettledUrl(entry, "done", "200"), page, SiteGains())
    assert (first.next_at, first.previous_at) == (AT + HOUR + 1, 0.0)  # whole seconds, and not too early
    due_s, stored = bytes(settled.follow_up).removeprefix(b"visit\nnew\n").split(b"\n", 1)
    assert int(due_s) == first.next_at
    again = msgspec.structs.replace(entry, priority=visit_priority(int(due_s)), visit=first.visit_state)
    assert stored == rest_of_record(again)
    for without in (parse_rules(["never"]), ()):
        _, last = planned(without, SettledUrl(again, "done", "200"), page, SiteGains())
        assert (last.next_at, last.visit_state, last.previous_at) == (0.0, "", AT + 0.3)
    failed = planned(rules, SettledUrl(again, "done", "200"), page, SiteGains())[1].failed()
    assert (failed.next_at, failed.visit_state, failed.previous_at) == (0.0, "", 0.0)


def exchange(url: str, at: float) -> Exchange:
    return Exchange(url, 200, "OK", (), b"", b"", b"body", "", at, 0.1, 0.1)


def test_a_replica_remembers_a_limited_number_of_domains() -> None:
    gains = SiteGains()
    for number in range(MOST_SITES + 5):
        gains.note(f"d{number}.test", 10 * GAIN, GAIN)
    assert gains.least("d4.test") == 0 and gains.least("d5.test") > 0
