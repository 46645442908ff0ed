"""What the commands about settings print and change: `crawler config`, and the file that `crawler init` writes."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.errors import UserError
from crawler.settings import reference
from crawler.settings.load import CrawlSettings, load
from frontier.crawls import Crawl, save_settings
from frontier.errors import BadInput
from frontier.store import RedisStore
from tests.cli.conftest import Hand
from tests.typed import Typed


def test_the_stored_settings_are_shown_and_replaced(hand: Hand, tmp_path: Path) -> None:
    shown = hand.json("config", "show")
    assert shown["politeness"]["delay"] == 1.0
    file = tmp_path / "new.toml"
    file.write_text(f'[politeness]\ndelay = 7\n[frontier]\nshards = 3\n[replica]\nredis = "{hand.url}"\n')
    changes = hand.json("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    assert [(one["name"], one["before"], one["after"], one["takes_effect"]) for one in changes] == [
        ("politeness.delay", 1.0, 7.0, reference.AT_ONCE),
        ("frontier.shards", 1024, 3, reference.CREATION),
    ]
    after = hand.json("config", "show")
    assert after["politeness"]["delay"] == 7.0
    assert after["frontier"]["shards"] == shown["frontier"]["shards"]
    assert "delay = 7.0" in hand.type("config", "show")


def test_a_file_with_one_setting_changes_this_setting_only(typed: Typed, tmp_path: Path) -> None:
    """`config apply` changes what a file names, and `--replace` resets the others and says which."""
    assert typed("seed", "http://127.0.0.1:3000/", "--allow", "127.0.0.1", "--port", "3000").code == 0
    (tmp_path / "few.toml").write_text("[limits]\nmax_pages = 150\n")
    (tmp_path / "slow.toml").write_text("[politeness]\ndelay = 5\n")
    assert typed("config", "apply", "few.toml").code == 0
    done = typed("config", "apply", "slow.toml")
    assert (done.code, "max_pages" in done.out, "reset" in done.out) == (0, False, False)
    shown = json.loads(typed("config", "show", "--json").out)
    assert (shown["politeness"]["delay"], shown["limits"]["max_pages"]) == (5.0, 150)
    assert shown["fetch"]["allow"] == ["127.0.0.1"]
    assert "nothing changes" in typed("config", "apply", "slow.toml").out
    done = typed("config", "apply", "slow.toml", "--replace", environment={"COLUMNS": "120"})
    told = [line.split()[-1] for line in done.out.splitlines() if line.startswith("reset to the default")]
    assert told == ["limits.max_pages", "fetch.allow", "fetch.ports"]
    shown = json.loads(typed("config", "show", "--json").out)
    assert (shown["politeness"]["delay"], shown["limits"]["max_pages"], shown["fetch"]["allow"]) == (5.0, 0, [])


def test_a_file_is_judged_together_with_the_settings_of_the_crawl(typed: Typed, tmp_path: Path) -> None:
    assert typed("seed", "https://a.test/").code == 0
    (tmp_path / "kind.toml").write_text("[scope]\nkind = 'domains'\n")
    (tmp_path / "list.toml").write_text("[scope]\ndomains = ['a.test']\n")
    assert typed("config", "apply", "kind.toml").code == 2
    assert 'kind = "seeds"' in typed("config", "show").out
    (tmp_path / "both.toml").write_text("[scope]\nkind = 'domains'\ndomains = ['b.test']\n")
    for name in ("both.toml", "list.toml", "kind.toml"):
        assert typed("config", "apply", name).code == 0
    assert 'domains = ["a.test"]' in typed("config", "show").out


def test_a_change_that_waits_for_a_restart_is_explained(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text(
        f'[fetch]\ncontact = "a@b.test"\n[limits]\nmax_pages = 9\n[frontier]\nshards = 3\n[replica]\nredis = "{hand.url}"\n'
    )
    told = hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    assert "settings revision 2" in told
    assert re.search(r"limits\.max_pages +0 +9 +at once", told)
    assert re.search(r"fetch\.contact .* when the replicas restart", told)
    assert "fetch.contact waits: " in told
    assert re.search(r"frontier\.shards .* only when the crawl is created", told)
    assert "# revision 2" in hand.type("config", "show")
    assert "frontier.shards stays 1024: `crawler reshard --shards 3` changes it" in " ".join(told.split())
    assert "frontier.shards waits" not in told


def test_a_change_that_needs_another_command_is_refused_with_it(typed: Typed, tmp_path: Path) -> None:
    assert typed("seed", "https://a.test/").code == 0
    (tmp_path / "shards.toml").write_text("[frontier]\nshards = 32\n")
    done = typed("config", "apply", "shards.toml")
    told = "error: nothing was changed: frontier.shards stays 64: `crawler reshard --shards 32` changes it\n"
    assert (done.code, done.err) == (2, told)


@pytest.mark.parametrize("bad", ['exclude = ["["]', 'kind = "hosts"\ndomains = ["a b"]', "max_depth = -1"])
def test_unusable_settings_change_nothing(hand: Hand, tmp_path: Path, bad: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(f'[politeness]\ndelay = 9\n[scope]\n{bad}\n[replica]\nredis = "{hand.url}"\n')
    creation = ("seed", "https://d.test/", "--crawl", f"{hand.crawl}-new", "--settings")
    for words in (("config", "check"), ("config", "apply", "--crawl", hand.crawl), creation):
        with pytest.raises((UserError, BadInput)) as told:
            hand.type(*words, str(file), here=False)
        assert "\n" not in str(told.value)
    assert hand.json("config", "show")["politeness"]["delay"] == 1.0
    with pytest.raises(UserError, match="no crawl named"):
        hand.type("status", "--crawl", f"{hand.crawl}-new", "--redis", hand.url, here=False)
    assert hand.json("status")["settings_revision"] == 1


def test_a_settings_file_is_checked(hand: Hand, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('[politeness]\ndelay = 3\n[replica]\nredis = "redis://user:secret@host/0"\n')
    bad.write_text("[politeness]\ndely = 3\n")
    assert "delay = 3.0" in hand.type("config", "check", str(good), here=False)
    assert "secret" not in hand.type("config", "check", str(good), "--json", here=False)
    with pytest.raises(UserError, match=r"politeness\.dely: there is no such setting"):
        hand.type("config", "check", str(bad), here=False)


def test_settings_are_explained(hand: Hand) -> None:
    assert "CRAWLER_POLITENESS__DELAY" in hand.type("config", "explain", "politeness.delay", here=False)
    assert len(hand.json("config", "explain", "limits", here=False)) > 3
    assert len(hand.json("config", "explain", here=False)) == len(reference.all_settings())
    with pytest.raises(UserError, match="did you mean"):
        hand.type("config", "explain", "politness", here=False)


def test_the_variable_in_the_explanation_of_a_repeated_table_works(
    hand: Hand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "text, required" in hand.type("config", "explain", "extract.name", here=False)
    assert hand.type("config", "explain", "extract.fields", here=False).count("environment CRAWLER_EXTRACT=") == 1
    (tmp_path / "c.toml").write_text("")
    for one in (one for one in reference.all_settings() if one.table in reference.repeated()):
        (assignment,) = shlex.split(one.environment)
        variable, _, value = assignment.partition("=")
        monkeypatch.setenv(variable, value)
        assert f"[[{one.table}]]" in hand.type("config", "check", str(tmp_path / "c.toml"), here=False)
        monkeypatch.delenv(variable)


@pytest.mark.parametrize("preset", reference.PRESETS)
def test_init_writes_the_settings_of_the_preset_only(hand: Hand, tmp_path: Path, preset: str) -> None:
    file = tmp_path / "crawler.toml"
    hand.type("init", str(file), "--preset", preset, here=False)
    values = reference.PRESETS[preset][1]
    written = tomllib.loads(file.read_text())
    assert {f"{table}.{key}": value for table, keys in written.items() for key, value in keys.items()} == dict(values)
    assert load(file).crawl == CrawlSettings() or values
    # Every line that stands as a comment is a setting that could be uncommented as it is.
    uncommented = "\n".join(
        line[2:] if line.startswith("# ") and " = " in line and line[2:].split(" = ")[0].isidentifier() else line
        for line in file.read_text().splitlines()
    )
    file.write_text(uncommented)
    load(file)


def test_a_settings_file_is_not_overwritten(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "crawler.toml"
    file.write_text("mine")
    with pytest.raises(UserError, match="--force"):
        hand.type("init", str(file), here=False)
    assert file.read_text() == "mine"


def other_values() -> dict[str, dict[str, Any]]:
    """A value for each setting that is not its default, as {table: {key: value}}."""
    odd = 'q"\\\u007f \u00fc \U0001f578 ' + 100 * "long "
    found: dict[str, dict[str, Any]] = {}
    for one in (one for one in reference.all_settings() if one.table in reference.tables()):
        words = re.findall(r'"(\w+)"', one.kind)
        numbers = [one.default + 1, one.default - 1, one.default / 2] if isinstance(one.default, int | float) else [1]
        texts = [*words, "word", "10.0.0.0/8", "redis://queue", "9410", "https://a.test/"]
        lists: list[list[Any]] = [
            [81],
            ["search"],
            ["src"],
            ["10.0.0.0/8"],
            ["*.test=10.0.0.1:80"],
            ["fetch.ports=81"],
            ["every=6h"],
            words[:1],
            ["/list -> click button"],
        ]
        for value in (not one.default, *numbers, odd, [odd, "b"], *texts, *lists):
            try:
                loaded = load(None, {one.table: {one.key: value}})
            except UserError:
                continue
            if getattr(getattr(loaded, one.table), one.key) != one.default:
                found.setdefault(one.table, {})[one.key] = value
                break
        else:
            raise AssertionError(one)
    return found


def test_the_output_of_config_show_is_a_settings_file(hand: Hand, tmp_path: Path) -> None:
    """Given a crawl in which no setting has its default, then the shown text gives the same settings as a file."""
    fields = {"odd name": {"css": "h1", "required": True}, "sku": {"json_ld": "Product.sku", "list": True}}
    values = {**other_values(), "extract": [{"name": "products", "fields": fields}]}
    values["app"] = {"database": "x", "odd key": {"nested": [1, {"a": 2.5}]}, "flag": True}
    del values["replica"]
    wanted = load(None, values).crawl  # type: ignore[arg-type]

    async def store_them(store: RedisStore, crawl: Crawl) -> None:
        await save_settings(store, crawl, wanted.to_json())

    hand.with_store(store_them)
    file = tmp_path / "shown.toml"
    file.write_text(hand.type("config", "show"))
    assert load(file).crawl == wanted
    assert hand.json("config", "show") == msgspec.json.decode(wanted.to_json())


@pytest.mark.parametrize("extract", ["", '[[extract]]\nname = "a"\nfields = {a = {css = "p"}}\n'])
def test_the_output_of_config_show_and_check_passes_config_check(hand: Hand, tmp_path: Path, extract: str) -> None:
    file, again = tmp_path / "a.toml", tmp_path / "b.toml"
    file.write_text(f'[scope]\nexclude = ["{100 * "long"}"]\n{extract}[replica]\nredis = "{hand.url}"\n')
    hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)
    for words, here in ((("config", "show"), True), (("config", "check", str(file)), False)):
        again.write_text(hand.type(*words, here=here))
        hand.type("config", "check", str(again), here=False)
        assert load(again).crawl == load(file).crawl


def test_credentials_in_settings_are_not_printed(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "secret.toml"
    file.write_text(f'[archive]\nupload = "s3://key:s3cret@bucket/x?token=s3cret"\n[replica]\nredis = "{hand.url}"\n')
    for form in ([], ["--json"]):
        printed = [
            hand.type("config", "apply", str(file), "--crawl", hand.crawl, *form, here=False),
            hand.type("config", "show", *form),
            hand.type("config", "check", str(file), *form, here=False),
        ]
        assert [text for text in printed if "s3cret" in text] == []
        assert all("s3://bucket/x" in text for text in printed[1:])
        hand.type("config", "apply", str(file), "--crawl", hand.crawl, here=False)


def test_changes_are_shown_as_they_are_written_in_a_file(hand: Hand, tmp_path: Path) -> None:
    file = tmp_path / "lists.toml"
    file.write_text('[fetch]\nallow = ["10.0.0.0/8"]\nallow_private = true\n[politeness]\naddress_rate = 3\n')
    told = hand.type("config", "apply", str(file))
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()[2:5]}
    assert rows["fetch.allow"][:2] == ["[]", '["10.0.0.0/8"]']
    assert rows["fetch.allow_private"][:2] == ["false", "true"]
    assert rows["politeness.address_rate"][:2] == ["unset", "3.0"]


def test_a_pattern_that_looks_like_one_for_file_names_is_told(typed: Typed, tmp_path: Path) -> None:
    assert typed("seed", "https://a.test/").code == 0
    (tmp_path / "globs.toml").write_text('[scope]\nexclude = ["/b/*", "/a\\\\d*", "^(?!.*/docs)"]\n')
    done = typed("config", "apply", "globs.toml")
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith(
        "note: scope.exclude: '/b/*' looks like a pattern for file names; it is a regular expression"
    )
