"""Values are converted to the types of the settings, and each that cannot be used is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.errors import SettingsInvalid, UserError
from crawler.settings.loading import CrawlSettings, load


def refused(problem: pytest.ExceptionInfo[SettingsInvalid]) -> tuple[str, ...]:
    return problem.value.details or (str(problem.value),)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("limits.max_pages", " 1_000 ", 1000),
        ("limits.max_pages", "5.0", 5),
        ("politeness.delay", "2", 2.0),
        ("politeness.address_rate", "0.5", 0.5),
        ("archive.warc", "No", False),
        ("archive.via", "on", True),
        ("fetch.ports", "80, 8_080", [80, 8080]),
        ("fetch.ports", '["80", 81]', [80, 81]),
        ("archive.upload", "0", "0"),
    ],
)
def test_a_variable_may_write_a_value_as_text(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(f"CRAWLER_{name.replace('.', '__').upper()}", text)
    found = load().flat()[name]
    assert (found, type(found)) == (value, type(value))


def test_a_table_in_a_variable_may_have_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_LIMITS", '{"max_pages": "7", "max_body": 1e6}')
    limits = load().limits
    assert (limits.max_pages, limits.max_body) == (7, 1_000_000)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('max_pages = "5"', 'limits.max_pages = "5": must be a valid integer'),
        ("max_pages = 5.0", "limits.max_pages = 5.0: must be a valid integer"),
        ("max_body = 0", "limits.max_body = 0: must be greater than 0"),
    ],
)
def test_a_file_has_to_write_a_number_as_one(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"[limits]\n{line}\n")
    with pytest.raises(SettingsInvalid) as raised:
        load(path)
    assert refused(raised) == (f"{path}:2: {problem}",)


def test_each_item_of_a_list_is_checked() -> None:
    with pytest.raises(SettingsInvalid) as raised:
        load(None, {"fetch": {"ports": [0, 80, 70_000, "x"]}, "scope": {"max_depth": 256}})
    assert refused(raised) == (
        "--port: fetch.ports.0 = 0: must be greater than or equal to 1",
        "--port: fetch.ports.2 = 70000: must be less than or equal to 65535",
        '--port: fetch.ports.3 = "x": must be a valid integer',
        "--max-depth: scope.max_depth = 256: must be less than or equal to 255",
    )


def test_problems_of_repeated_tables_are_reported_together() -> None:
    duties = [{"seeds": "x"}, {"every": "6h"}, {"every": 6, "seed": "y"}, 3]
    with pytest.raises(SettingsInvalid) as raised:
        load(None, {"schedule": duties})  # type: ignore[dict-item]
    assert set(refused(raised)) == {
        "schedule.0.every: is required",
        "schedule.1: give either `seeds` or `sitemap`",
        "schedule.2.every = 6: must be a valid string",
        "schedule.2.seed: there is no such setting; did you mean schedule.seeds?",
        "schedule.3 = 3: must be a table",
    }


def test_text_that_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte that is not UTF-8 becomes a lone surrogate, which JSON cannot have."""
    monkeypatch.setenv("CRAWLER_SCOPE__EXCLUDE", "a,\udcff")
    with pytest.raises(SettingsInvalid, match=r"scope\.exclude\.1 = .*: must be a valid string"):
        load()


def test_stored_settings_have_all_keys_and_those_that_lack_some_get_the_defaults() -> None:
    stored: dict[str, Any] = msgspec.json.decode(CrawlSettings().to_json())
    assert stored["politeness"]["delay"] == 1.0
    assert CrawlSettings.from_json(CrawlSettings().to_json()) == CrawlSettings()
    del stored["archive"], stored["limits"]["max_body"]
    assert CrawlSettings.from_json(msgspec.json.encode(stored)) == CrawlSettings()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"limits": {"max_parsed": 3}}', "limits.max_parsed: there is no such setting; did you mean"),
        ('{"limits": {"max_pages": -1}}', "limits.max_pages = -1: must be greater than or equal to 0"),
        ('{"limits": ', "Input data was truncated"),
        ("[]", "Expected `object`, got `array`"),
    ],
)
def test_stored_settings_that_cannot_be_used_are_reported(text: str, problem: str) -> None:
    with pytest.raises(SettingsInvalid) as raised:
        CrawlSettings.from_json(text.encode())
    assert str(raised.value).startswith(f"the crawl's stored settings: {problem}")


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "settings.toml"
    file.write_text('[replica]\nout = "~/pages"\ndata_dir = "~nobody-here/x"\n')
    replica = load(file).replica
    assert (replica.out, replica.data_dir) == (tmp_path / "pages", Path("~nobody-here/x"))


@pytest.mark.parametrize("url", ["s3//bucket/news", "gs//bucket", "file//mnt/news", "ftp://host/x", "s3://"])
def test_a_mistyped_upload_address_is_not_a_folder(url: str) -> None:
    with pytest.raises(UserError, match="write it as s3://BUCKET/PREFIX"):
        load(None, {"archive": {"upload": url}})


def test_a_folder_may_have_a_name_that_is_no_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_REPLICA__OUT", "/data/\udcff")
    assert load().flat()["replica.out"] == "/data/\udcff"
