"""Settings that need the consent of a replica's own machine."""

from __future__ import annotations

import re
from typing import Any

import pytest

from crawler.errors import UserError
from crawler.settings import reference
from crawler.settings.guarded import accepted, check_guarded
from crawler.settings.load import CrawlSettings, Settings, load
from crawler.settings.tables import GUARDED

OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "archive.on_page": ({"archive": {"on_page": ["os:system"]}}, "os:system"),
    "archive.sinks": ({"archive": {"sinks": ["os:system"]}}, "os:system"),
    "archive.upload": ({"archive": {"upload": "s3://k:secret@theirs/?token=secret"}}, "s3://theirs/"),
    "fetch.allow": ({"fetch": {"allow": ["10.0.0.0/8"]}}, "10.0.0.0/8"),
    "fetch.allow_private": ({"fetch": {"allow_private": True}}, "true"),
    "fetch.host_map": ({"fetch": {"host_map": ["*=127.0.0.1:6379"]}}, "*=127.0.0.1:6379"),
    "fetch.ports": ({"fetch": {"ports": [25]}}, "25"),
    "fetch.verify_tls": ({"fetch": {"verify_tls": False}}, "false"),
    "frontier.scorer": ({"frontier": {"scorer": "os:system"}}, "os:system"),
    "handlers.app": ({"handlers": {"app": "os:system"}}, "os:system"),
}
"""Guarded setting -> tables that set it, and how its value is shown."""


def replica(tables: dict[str, Any] | None = None, **own: Any) -> Settings:
    return load(None, {**(tables or {}), "replica": {"redis": "redis://queue:6379/0", **own}})


def stored(name: str) -> CrawlSettings:
    return load(None, OTHERS[name][0]).crawl


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_a_guarded_setting_that_only_redis_has_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=re.escape(f"{name} = {OTHERS[name][1]!r} is set in Redis but not")) as refused:
        check_guarded(stored(name), accepted(replica()))
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", sorted(GUARDED))
def test_a_guarded_setting_that_the_machine_allows_is_accepted(name: str) -> None:
    tables, shown = OTHERS[name]
    check_guarded(stored(name), accepted(replica(tables)))
    check_guarded(stored(name), accepted(replica(accept=[name])))
    check_guarded(stored(name), accepted(load()))
    if "secret" not in str(tables):
        check_guarded(stored(name), accepted(replica(accept=[f"{name}={shown}"])))


def test_one_value_is_accepted_and_not_another() -> None:
    both = load(None, {"fetch": {"allow": ["10.1.0.0/16", "10.2.0.0/16"]}}).crawl
    check_guarded(both, accepted(replica(accept=["fetch.allow=10.1.0.0/16", "fetch.allow=10.2.0.0/16"])))
    with pytest.raises(UserError, match=r"10\.2\.0\.0/16"):
        check_guarded(both, accepted(replica(accept=["fetch.allow=10.1.0.0/16"])))
    with pytest.raises(UserError, match=r"10\.2\.0\.0/16"):
        check_guarded(both, accepted(replica({"fetch": {"allow": ["10.1.0.0/16"]}})))


def test_all_refused_settings_are_named_with_the_line_that_accepts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    both = load(None, {"fetch": {"allow": ["127.0.0.1"], "ports": [18431]}}).crawl
    with pytest.raises(UserError) as refused:
        check_guarded(both, accepted(replica()))
    assert "fetch.allow = '127.0.0.1'" in str(refused.value)
    assert "fetch.ports = '18431'" in str(refused.value)
    name, _, value = str(refused.value).rpartition(" ")[2].partition("=")
    assert (name, value) == ("CRAWLER_REPLICA__ACCEPT", "fetch.allow,fetch.ports")
    monkeypatch.setenv(name, value)
    check_guarded(both, accepted(replica()))


def test_other_settings_and_defaults_come_from_redis() -> None:
    """The default of a guarded setting opens nothing, even where the machine has another value."""
    ordinary = load(None, {"politeness": {"delay": 9}, "scope": {"kind": "any"}, "archive": {"text": "markdown"}}).crawl
    check_guarded(ordinary, accepted(replica()))
    check_guarded(CrawlSettings(), accepted(replica({"fetch": {"ports": [8123], "allow_private": True}})))


def test_a_value_from_redis_cannot_forge_log_lines() -> None:
    forged = load(None, {"archive": {"on_page": ["a:b\nERROR \x1b[2J" + "x" * 10_000]}}).crawl
    with pytest.raises(UserError) as refused:
        check_guarded(forged, ())
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("entry", ["archive.onpage", "politeness.delay", "fetch", "*"])
def test_an_entry_that_names_no_guarded_setting_stops_the_start(entry: str) -> None:
    with pytest.raises(UserError, match=r"replica\.accept.*names none of archive\.on_page"):
        replica(accept=[entry])


def test_guarded_settings_exist_and_say_so() -> None:
    marked = {one.name for one in reference.all_settings() if one.guarded}
    assert marked == GUARDED
    consent = {one.name for one in reference.all_settings() if one.takes_effect == reference.CONSENT}
    assert consent == GUARDED
