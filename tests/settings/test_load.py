"""Settings from their sources: values are converted to the types of the settings, and each that cannot be used is reported.

`tests/cli/test_bad_settings.py` has the messages that a user sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.app.supervisor import EMBEDDED_INTERVAL_S, local_settings
from crawler.errors import SettingsInvalid, UserError
from crawler.settings.load import NO_CONTACT, CrawlSettings, environment_name, load, missing_contact
from crawler.settings.reference import PRESETS
from tests.typed import Typed


def problems_of(raised: pytest.ExceptionInfo[SettingsInvalid]) -> tuple[str, ...]:
    return raised.value.details or (str(raised.value),)


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
        ("fetch.allow", "10.0.0.0/8, ::1", ["10.0.0.0/8", "::1"]),
        ("archive.upload", "0", "0"),
        ("replica.out", "/data/\udcff", "/data/\udcff"),  # a folder may have a name that is no UTF-8
    ],
)
def test_a_variable_may_write_a_value_as_text(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: object
) -> None:
    monkeypatch.setenv(environment_name(name), text)
    found = load().flat()[name]
    assert (found, type(found)) == (value, type(value))


def test_a_table_in_a_variable_may_have_texts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAWLER_LIMITS", '{"max_pages": "7", "max_body": 1e6}')
    limits = load().limits
    assert (limits.max_pages, limits.max_body) == (7, 1_000_000)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('max_pages = "5"', 'limits.max_pages = "5": must be a valid integer: write it without quotes'),
        ("max_pages = 5.0", "limits.max_pages = 5.0: must be a valid integer"),
        ("max_body = 0", "limits.max_body = 0: must be greater than or equal to 1"),
    ],
)
def test_a_file_has_to_write_a_number_as_one(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "s.toml"
    path.write_text(f"[limits]\n{line}\n")
    with pytest.raises(SettingsInvalid) as raised:
        load(path)
    assert problems_of(raised) == (f"{path}:2: {problem}",)


def test_each_item_of_a_list_is_checked() -> None:
    with pytest.raises(SettingsInvalid) as raised:
        load(None, {"fetch": {"ports": [0, 80, 70_000, "x"]}, "scope": {"max_depth": 256}})
    assert problems_of(raised) == (
        "--port: fetch.ports.0 = 0: must be greater than or equal to 1",
        "--port: fetch.ports.2 = 70000: must be less than or equal to 65535",
        '--port: fetch.ports.3 = "x": must be a valid integer',
        "--max-depth: scope.max_depth = 256: must be less than or equal to 255",
    )


def test_problems_of_repeated_tables_are_reported_together() -> None:
    tables = [{"fields": {"a": {"css": "p"}}}, {"name": "a", "fields": {}}, {"name": 6, "field": "y"}, 3]
    with pytest.raises(SettingsInvalid) as raised:
        load(None, {"extract": tables})  # type: ignore[dict-item]
    assert set(problems_of(raised)) == {
        "extract.0.name: is required",
        "extract.1: `fields` needs at least one field",
        "extract.2.name = 6: must be a valid string",
        "extract.2.field: there is no such setting; did you mean extract.fields?",
        "extract.2.fields: is required",
        "extract.3 = 3: must be a table",
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


def test_a_redis_url_that_cannot_be_used_is_reported_without_its_password() -> None:
    with pytest.raises(UserError, match=r"replica\.redis: .*write it as redis://") as raised:
        load(None, {"replica": {"redis": "redis://:se/cret@queue"}})
    assert "cret" not in str(raised.value)


def test_settings_that_were_given_can_be_told_from_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults for one machine, and the comparison with the settings of an existing crawl, depend on this."""
    (tmp_path / "crawler.toml").write_text("[frontier]\nlease = 5\n")
    monkeypatch.setenv("CRAWLER_POLITENESS__DELAY", "3")
    loaded = load(tmp_path / "crawler.toml", {"politeness": {"tries": 2}})
    assert {name for name in loaded.flat() if loaded.names(name)} == {
        *("frontier.lease", "politeness.delay", "politeness.tries")
    }


def test_only_settings_that_were_given_change_those_of_a_crawl() -> None:
    rule: Any = [{"name": "a", "fields": {"a": {"css": "p"}}}]
    stored = load(None, {"politeness": {"delay": 9, "tries": 2}, "extract": rule}).crawl
    changed = load(None, {"politeness": {"delay": 1.0}, "replica": {"grace": 1}}).onto(stored)
    assert changed == load(None, {"politeness": {"delay": 1, "tries": 2}, "extract": rule}).crawl


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


def contact_of(preset: str = "polite", **tables: dict[str, Any]) -> str:
    changes = [(*name.split("."), value) for name, value in PRESETS[preset][1].items()]
    for table, key, value in changes:
        tables.setdefault(table, {}).setdefault(key, value)
    return missing_contact(CrawlSettings.of(tables))


def test_a_crawl_of_others_sites_without_a_contact_gets_a_warning() -> None:
    assert contact_of() == contact_of("archive") == NO_CONTACT
    assert contact_of("own-site") == contact_of(fetch={"contact": "https://example.org/bot"}) == ""


@pytest.mark.parametrize(
    "own",
    [
        {"politeness": {"delay": 0}},
        {"fetch": {"host_map": ["*.test=127.0.0.1:8000"]}},
        {"fetch": {"allow_private": True}},
        {"fetch": {"allow": ["10.1.0.0/16"]}},
        {"fetch": {"contact": "bot@example.org"}},
    ],
)
def test_ones_own_hosts_need_no_contact(own: dict[str, Any]) -> None:
    assert contact_of("broad", **own) == ""


def test_a_crawl_of_the_whole_web_needs_a_contact() -> None:
    with pytest.raises(UserError, match=r"\[fetch\] contact"):
        contact_of("broad")


def test_commands_warn_or_refuse_before_anything_is_created(typed: Typed) -> None:
    wide = {"COLUMNS": "300"}
    for command in ("crawl", "seed"):
        refused = typed(command, "https://example.com/", environment={**wide, "CRAWLER_SCOPE__KIND": "any"})
        assert (refused.code, refused.err.count("\n")) == (2, 1)
        assert refused.err.startswith("error: fetch.contact is not set")
        assert not list(typed.folder.iterdir())
    # Nothing is fetched: the crawl has no page left to get.
    paused = {**wide, "CRAWLER_LIMITS__MAX_PAGES": "0", "CRAWLER_REPLICA__OUT": str(typed.folder / "out")}
    assert typed("seed", "https://a.test/", environment=paused).err == ""
    assert typed("block", "a.test", environment=wide).code == 0
    assert f"note: {NO_CONTACT}\n" in typed("crawl", "--quiet", environment=paused).err
    assert "no_contact" in typed("run", "--until-empty", environment=paused).err
    contact = {**paused, "CRAWLER_FETCH__CONTACT": "a@b.test"}
    assert "no_contact" not in typed("run", "--until-empty", "--apply-settings", environment=contact).err
