"""How `crawler why` explains the time of the next visit."""

from __future__ import annotations

import msgspec
import pytest

from crawler.scope.next_visit import RecrawlRule, Visits, described, parse_rules

HOUR, DAY = 3_600, 86_400
ADAPTIVE = "adaptive min=1h max=30d gain=30m"
DAILY = Visits(0, 0, compared=20, changes=10, changed_s=10 * 60_000, unchanged_s=10 * 60_000, digest="A")


def visits(interval_s: float, **more: int) -> Visits:
    return msgspec.structs.replace(Visits(0, 0, round(interval_s), digest="A"), **more)


def told(text: str, seen: Visits, of: str = "") -> str:
    """The words if `of`, by default `text`, was the only rule at the last visit, and `text` is now."""
    (rule,) = parse_rules([of or text])
    return described([text], msgspec.structs.replace(seen, rule=rule.mark))


def planned(seen: Visits, text: str = ADAPTIVE, gain_s: float = 0.0) -> str:
    """The words for a page that was `seen`, with the interval that follows."""
    interval_s = round(RecrawlRule.parse(text).interval_s(seen, gain_s))
    fields = {name: getattr(seen, name) for name in ("compared", "changes", "changed_s", "unchanged_s")}
    return told(text, visits(interval_s, **fields))


@pytest.mark.parametrize(
    ("text", "seen", "words"),
    [
        ("every=6h", visits(6 * HOUR), "every 6 h by the rule 'every=6h'"),
        ("every=6h cache", visits(2 * DAY), ": until then, its response says that it is fresh"),
        (
            "adaptive",
            visits(DAY),
            "every 24 h by the rule 'adaptive': visited once, so nothing is known of its changes",
        ),
        ("adaptive", visits(DAY, misses=1), ", doubled once because the page was not found or could not be fetched"),
        ("adaptive", visits(DAY, misses=3), "doubled 3 times because"),
        (
            "adaptive",
            visits(DAY, misses=9),
            "doubled 9 times, but at most 30 d for a permanent redirect, and 365 d other",
        ),
        ("every=60d", visits(60 * DAY, misses=1), "doubled once, but at most 60 d for a permanent redirect"),
        ("every=45s", visits(45), "every 45 s"),
        ("every=20m", visits(20 * 60), "every 20 min"),
        ("never", visits(90), "every 1.5 min by the rule 'never'"),
    ],
)
def test_the_interval_is_explained(text: str, seen: Visits, words: str) -> None:
    assert words in told(text, seen)


def test_a_rule_of_another_list_is_not_named() -> None:
    words = told("adaptive", visits(DAY), of="adaptive max=9d")
    assert words == "every 24 h, by a rule from before the rules were changed"


def test_an_interval_that_was_chosen_by_the_gain_says_so() -> None:
    words = planned(DAILY)
    assert "10 of the last 20 comparisons found a change, and it is estimated to change every " in words
    assert words.endswith("; a visit then gains 30 min in which the copy is up to date")


def test_a_site_whose_delay_does_not_allow_the_visits_is_named() -> None:
    assert planned(DAILY, gain_s=2 * HOUR).endswith("so each has to gain more")


def test_the_limits_are_named_with_what_leads_to_them() -> None:
    quiet = visits(0, compared=20, unchanged_s=20 * 365 * DAY)
    restless = visits(0, compared=20, changes=19, changed_s=19 * 300, unchanged_s=60)
    assert planned(quiet).endswith("30 d is the longest interval, for pages that change seldom")
    assert "so often that a visit does not gain 30 min" in planned(restless)
    assert planned(DAILY, "adaptive min=12h max=30d").endswith("12 h is the shortest interval")


def test_a_page_that_changed_at_each_visit_is_visited_sooner() -> None:
    seen = visits(0, compared=3, changes=3, changed_s=3 * 5 * DAY)
    assert planned(seen).endswith("so the next visits are sooner")
