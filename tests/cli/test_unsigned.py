"""A crawl whose replicas had `[identity]` or `[[requests]]`, and that is continued without."""

from __future__ import annotations

from pathlib import Path

import pytest

from crawler.app.requests import MISSING
from crawler.identity.keys import make_key
from tests.typed import Typed

WIDE = {"COLUMNS": "300"}
SETTINGS = '[identity]\nkeys = ["key.pem"]\ndirectory = "https://crawler.example/keys"\n'


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    """Commands for a crawl that has nothing to fetch."""
    typed = Typed(tmp_path, monkeypatch, capsys)
    make_key(tmp_path / "key.pem")
    (tmp_path / "crawler.toml").write_text(SETTINGS)
    assert typed("seed", "https://a.test/").code == 0
    assert typed("block", "a.test").code == 0
    return typed


@pytest.mark.parametrize("words", [("crawl", "--quiet"), ("run", "--until-empty")], ids=lambda words: words[0])
@pytest.mark.parametrize("first", [("crawl", "--quiet"), ("run", "--until-empty")], ids=lambda words: words[0])
def test_a_crawl_that_has_signed_warns_when_it_goes_on_without_an_identity(
    typed: Typed, first: tuple[str, ...], words: tuple[str, ...]
) -> None:
    """Given a crawl, then nothing is said until a replica has signed, and after that at each start that does not sign."""
    assert MISSING["identity"] not in typed(*words, environment=WIDE).err
    for signing in (first, words):
        assert MISSING["identity"] not in typed(*signing, "--settings", "crawler.toml", environment=WIDE).err
    done = typed(*words, environment=WIDE)
    assert (done.code, done.err.count(MISSING["identity"])) == (0, 1)


def test_a_crawl_that_had_rules_for_requests_warns_when_it_goes_on_without_them(typed: Typed) -> None:
    rules = '[[requests]]\norigin = "https://a.test"\nbasic_env = "LOGIN"\n'
    (typed.folder / "rules.toml").write_text(rules)
    given = ("--settings", "rules.toml")
    first = typed("run", "--until-empty", *given, environment=WIDE | {"LOGIN": "me:s3cret"})
    assert (first.code, MISSING["requests"] in first.err) == (0, False), first.err
    for words in (("crawl", "--quiet"), ("run", "--until-empty")):
        done = typed(*words, environment=WIDE)
        assert (done.code, done.err.count(MISSING["requests"])) == (0, 1), done.err
    stored = b"".join(path.read_bytes() for path in (typed.folder / ".crawler").rglob("*") if path.is_file())
    assert b"local requests" in stored
    assert b"LOGIN" not in stored


def test_the_warning_survives_a_change_of_the_settings(typed: Typed) -> None:
    assert typed("run", "--until-empty", "--settings", "crawler.toml").code == 0
    done = typed("crawl", "--quiet", "--max-pages", "8", "--apply-settings", environment=WIDE)
    assert f"note: {MISSING['identity']}\n" in done.err


def test_no_key_and_no_path_is_stored(typed: Typed) -> None:
    assert typed("run", "--until-empty", "--settings", "crawler.toml").code == 0
    stored = b"".join(path.read_bytes() for path in (typed.folder / ".crawler").rglob("*") if path.is_file())
    assert b"local identity" in stored
    assert b"key.pem" not in stored


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ('keys = ["key.pem"]\n', "needs identity.directory"),
        ('directory = "https://crawler.example/keys"\n', "identity.keys names no key"),
        (SETTINGS.partition("\n")[2].replace("key.pem", "none.pem"), "there is no key at none.pem in {folder}, where"),
        (SETTINGS.partition("\n")[2].replace("key.pem", "/none.pem"), "there is no key at /none.pem"),
    ],
    ids=["no directory", "no key", "no file", "no file at an absolute path"],
)
def test_config_check_refuses_an_identity_as_the_start_does(typed: Typed, identity: str, said: str) -> None:
    (typed.folder / "bad.toml").write_text(f"[identity]\n{identity}")
    checked = typed("config", "check", "bad.toml", environment=WIDE)
    started = typed("run", "--until-empty", "--settings", "bad.toml", environment=WIDE)
    assert (checked.code, checked.err) == (started.code, started.err)
    assert checked.code == 2
    assert said.format(folder=typed.folder) in checked.err


def test_config_check_accepts_a_usable_identity(typed: Typed) -> None:
    assert typed("config", "check", "crawler.toml").code == 0
