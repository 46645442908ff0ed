"""Explains in words how the time of a page's next visit was chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from crawler.scope.next_visit import LONGEST_MOVED_S, LONGEST_S, RecrawlRule, Visits, marked, parse_rules

_LONGER = 1.05
"""An interval that is so many times longer than that of the rule has another reason."""


def described(texts: Sequence[str], seen: Visits) -> str:
    """How the time of the visit after those in `seen` was chosen. `texts`: the rules of the crawl."""
    every = f"every {_span(seen.interval_s)}"
    rules = parse_rules(texts)
    rule = marked(rules, seen.rule)
    if rule is None:
        return f"{every}, by a rule from before the rules were changed"
    every += f" by the rule {texts[rules.index(rule)]!r}"
    if seen.misses:
        return f"{every}, {_growth(seen)} because the page was not found or could not be fetched"
    reason = _reason(rule, seen)
    if rule.policy != "adaptive":
        return every + (f": {reason}" if reason else "")
    if not seen.compared:
        return f"{every}: visited once, so nothing is known of its changes"
    return f"{every}: {_changes(seen)}; {reason}"


def _growth(seen: Visits) -> str:
    """By how much the time until the next visit is longer than the interval."""
    longest_s = max(LONGEST_MOVED_S, seen.interval_s)
    doubled = "doubled once" if seen.misses == 1 else f"doubled {seen.misses} times"
    if seen.interval_s * 2.0 ** min(seen.misses, 60) <= longest_s:
        return doubled
    limits = f"{_span(longest_s)} for a permanent redirect, and {_span(LONGEST_S)} otherwise"
    return f"{doubled}, but at most {limits},"


def _changes(seen: Visits) -> str:
    rate = f"it is estimated to change every {_span(1 / seen.rate.mean)}"
    return f"{seen.changes} of the last {seen.compared} comparisons found a change, and {rate}"


def _reason(rule: RecrawlRule, seen: Visits) -> str:
    """Why the interval is neither shorter nor longer."""
    planned_s = rule.interval_s(seen)
    if rule.is_cached and seen.interval_s > planned_s * _LONGER:
        return "until then, its response says that it is fresh"
    if rule.policy != "adaptive" or not seen.compared:
        return ""
    if seen.interval_s >= rule.max_s:
        return f"{_span(rule.max_s)} is the longest interval, for pages that change {_how_often(rule, seen)}"
    if seen.interval_s > planned_s * _LONGER:
        return "the delay of the site does not allow the visits that the rule asks for, so each has to gain more"
    if seen.interval_s <= rule.min_s:
        return f"{_span(rule.min_s)} is the shortest interval"
    if seen.changes == seen.compared:
        return "it may change more often than it was visited, so the next visits are sooner"
    return f"a visit then gains {_span(rule.gain_s)} in which the copy is up to date"


def _how_often(rule: RecrawlRule, seen: Visits) -> str:
    """Such as a page that has the longest interval."""
    if 1 / seen.rate.mean < rule.max_s:
        return f"so often that a visit does not gain {_span(rule.gain_s)} in which the copy is up to date"
    return "seldom"


def _span(seconds: float) -> str:
    for longest, divisor, unit in ((90, 1, "s"), (5_400, 60, "min"), (129_600, 3_600, "h")):
        if seconds < longest:
            return f"{seconds / divisor:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"
