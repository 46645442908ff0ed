"""Settings from their sources. Values that were given can be distinguished from defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.app.run import EMBEDDED_INTERVAL_S, local_settings
from crawler.errors import SettingsInvalid, UserError
from crawler.settings.loading import load


def test_settings_that_were_given_can_be_told_from_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults for one machine, and the comparison with the settings of an existing crawl, depend on this."""
    (tmp_path / "crawler.toml").write_text("[frontier]\nlease = 5\n")
    monkeypatch.setenv("CRAWLER_POLITENESS__DELAY", "3")
    loaded = load(tmp_path / "crawler.toml", {"politeness": {"tries": 2}})
    assert {name for name in loaded.flat() if loaded.names(name)} == {
        *("frontier.lease", "politeness.delay", "politeness.tries")
    }


def test_only_settings_that_were_given_change_those_of_a_crawl() -> None:
    duty = {"every": "6h", "seeds": "new.txt"}
    stored = load(None, {"politeness": {"delay": 9, "tries": 2}, "schedule": [duty]}).crawl  # type: ignore[dict-item]
    changed = load(None, {"politeness": {"delay": 1.0}, "replica": {"grace": 1}}).onto(stored)
    expected = load(None, {"politeness": {"delay": 1, "tries": 2}, "schedule": [duty]}).crawl  # type: ignore[dict-item]
    assert changed == expected


@pytest.mark.parametrize(
    ("tables", "has"),
    [
        ("[replica]\ngrace = 1\n", False),
        ("[limits]\n# max_pages = 0\n[scope]\n", False),  # as `crawler init` writes it
        ("[limits]\nmax_pages = 1\n", True),
    ],
)
def test_a_file_with_only_replica_settings_is_recognized(tmp_path: Path, tables: str, has: bool) -> None:
    (tmp_path / "crawler.toml").write_text(tables)
    assert load(tmp_path / "crawler.toml", {"scope": {"kind": "any"}}).file_has_crawl_tables is has


def test_the_interval_is_short_with_the_embedded_store_unless_it_was_given(tmp_path: Path) -> None:
    assert local_settings(load(None, {"replica": {"out": tmp_path}})).interval == EMBEDDED_INTERVAL_S
    assert local_settings(load(None, {"replica": {"interval": 3.0}})).interval == 3.0


def test_a_list_in_the_environment_may_be_written_with_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_FETCH__ALLOW", "10.0.0.0/8, ::1")
    monkeypatch.setenv("CRAWLER_FETCH__PORTS", "80,18431")
    fetch = load().fetch
    assert (list(fetch.allow), list(fetch.ports)) == (["10.0.0.0/8", "::1"], [80, 18431])


def test_a_list_in_the_environment_that_is_no_json_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_FETCH__ALLOW", "[10.0.0.0/8]")
    with pytest.raises(UserError) as refused:
        load()
    advice = """write a list as JSON, such as CRAWLER_FETCH__ALLOW='["10.0.0.0/8"]'"""
    assert str(refused.value) == f"CRAWLER_FETCH__ALLOW: fetch.allow: {advice}"


def test_a_redis_url_that_cannot_be_used_is_reported_without_its_password() -> None:
    with pytest.raises(UserError, match=r"replica\.redis: .*write it as redis://") as refused:
        load(None, {"replica": {"redis": "redis://:se/cret@queue"}})
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('[limits]\nmax_pages = "x"\n', 's.toml:2: limits.max_pages = "x": must be a valid integer'),
        ("[limits]\nmax_pages = -3\n", "s.toml:2: limits.max_pages = -3: must be greater than or equal to 0"),
        ("limits = 3\n", "s.toml:1: limits = 3: must be a table"),
    ],
)
def test_an_option_does_not_hide_a_bad_value_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.toml").write_text(text)
    with pytest.raises(SettingsInvalid) as raised:
        load(Path("s.toml"), {"limits": {"max_pages": 5}})
    assert str(raised.value) == problem
