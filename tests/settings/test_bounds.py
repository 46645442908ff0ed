"""Each setting at its bounds, made from the declarations: it is refused in words, or all that is made of it works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from crawler.errors import SettingsInvalid, UserError
from crawler.settings import policies
from crawler.settings.load import CrawlSettings, load
from crawler.settings.reference import Setting, all_settings, tables
from politeness.delay import delay_ms
from politeness.rate_limit import slots

NUMBERS = (0, 5e-324, 1e-9, 1e7, 1e9, 1e308, -1.0, float("nan"), float("inf"))
WHOLE = (0, 1, 2**31, 10**15, 2**53, 2**63 - 1, 2**63, 2**64, -1)
TEXTS = ("", "\0", "a\0b", "\ud800", "x" * 100_000, "\u202e\n", "{}{0}%s", "[", "*", "..")


SETTINGS = [one for one in all_settings() if one.table in tables()]


def extremes(kind: str) -> list[Any]:
    """Values of a setting of this kind that lie at its bounds, or beyond."""
    values: tuple[Any, ...] = TEXTS
    if "number" in kind:
        bounds = map(float, re.findall(r"[<>]=? ([\d.e+-]+)", kind))
        values = (*WHOLE, *map(int, bounds)) if "whole" in kind else (*NUMBERS, *bounds)
    return [[], *([each] for each in values)] if kind.startswith("list of ") else list(values)


def works(settings: CrawlSettings) -> None:
    """Make what a replica makes of the settings. Raises UserError."""
    policies.check(settings)
    polite = policies.politeness_policy(settings)
    policies.scope(settings), policies.url_rules(settings), policies.extract_rules(settings)
    assert CrawlSettings.from_json(settings.to_json()) == settings
    longest_ms = delay_ms(polite.throttle.delay, 1e300, None, 1e300)
    assert 0 <= longest_ms < 2**53
    assert polite.robots.max_age_s > delay_ms(polite.throttle.delay, None, None, 0.0) / 1000
    if (limit := polite.rate_limit) is not None:
        now_ms = 1.8e12
        (first, *_), after_ms = slots(0.0, now_ms, 1, limit)
        assert first == now_ms
        assert now_ms < after_ms < 2**53  # the next request waits, and not for ever


@pytest.mark.parametrize("setting", SETTINGS, ids=[one.name for one in SETTINGS])
def test_a_setting_at_its_bounds_works_or_is_refused_in_words(setting: Setting) -> None:
    for value in extremes(setting.kind):
        try:
            works(load(None, {setting.table: {setting.key: value}}).crawl)
        except SettingsInvalid as error:
            assert all(setting.key in problem for problem in error.details or (str(error),))
        except UserError as error:
            assert str(error)


def test_a_very_high_rate_is_none() -> None:
    for rate in (2e6, 1e9):
        assert policies.rate_limit_policy(load(None, {"politeness": {"address_rate": rate}})) is None
    assert policies.rate_limit_policy(load(None, {"politeness": {"delay": 1e-9}})) is None


def test_a_path_that_no_file_system_takes_is_refused() -> None:
    with pytest.raises(SettingsInvalid, match=r"replica\.out: must not contain a name of more than 255 bytes"):
        load(None, {"replica": {"out": f"a/{'x' * 256}"}})
