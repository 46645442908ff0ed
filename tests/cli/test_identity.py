"""`crawler identity`: what each command prints and writes, and how mistakes are worded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from crawler.cli.identity import EXAMPLE
from tests.identity import site
from tests.typed import Typed

SETTINGS = """\
[identity]
keys = ["key.pem"]
directory = "https://crawler.example/keys"
[fetch]
contact = "bot@crawler.example"
"""

WITH = ("--settings", "crawler.toml")


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Typed:
    (tmp_path / "crawler.toml").write_text(SETTINGS)
    return Typed(tmp_path, monkeypatch, capsys)


def test_init_makes_a_key_and_says_what_to_publish(typed: Typed, tmp_path: Path) -> None:
    done = typed("identity", "init", "key.pem")
    assert done.code == 0, done.err
    (line,) = (line for line in done.out.splitlines() if line.startswith('{"keys"'))
    (name,) = site.keys_in(line.encode())
    assert f"thumbprint: {name}" in done.out
    assert 'keys = ["key.pem"]' in done.out
    assert EXAMPLE in done.out
    assert "PRIVATE KEY" not in done.out
    assert json.loads(typed("identity", "init", "two.pem", "--json").out)["file"] == "two.pem"


def test_init_does_not_overwrite_a_key(typed: Typed, tmp_path: Path) -> None:
    typed("identity", "init", "key.pem")
    before = (tmp_path / "key.pem").read_bytes()
    done = typed("identity", "init", "key.pem")
    assert (done.code, (tmp_path / "key.pem").read_bytes()) == (2, before)
    assert "exists already and was not changed" in " ".join(done.err.split())


def test_the_file_that_is_published_is_signed(typed: Typed, tmp_path: Path) -> None:
    typed("identity", "init", "key.pem")
    assert typed("identity", "directory", "www", *WITH).code == 0
    published, headers = (tmp_path / "www" / f"http-message-signatures-directory{end}" for end in ("", ".headers"))
    fields = dict(line.split(": ", 1) for line in headers.read_text().splitlines())
    lower = {name.lower(): value for name, value in fields.items()}
    now = int(lower["signature-input"].partition("created=")[2].partition(";")[0])
    assert site.check_directory("crawler.example", lower, published.read_bytes(), now)


@pytest.mark.parametrize(
    ("words", "left_out", "said"),
    [
        (("identity", "directory"), "keys", "set identity.keys"),
        (("identity", "directory"), "directory", "set identity.directory"),
        (("identity", "directory"), "", "there is no key at key.pem: `crawler identity init key.pem` makes one"),
        (("crawl", "https://a.test/"), "", "there is no key at key.pem"),
        (("crawl", "https://a.test/"), "keys", "identity.keys names no key to sign with"),
        (("crawl", "https://a.test/"), "directory", "identity.keys needs identity.directory"),
    ],
)
def test_what_is_missing_is_said_in_one_line(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], left_out: str, said: str
) -> None:
    kept = [line for line in SETTINGS.splitlines() if not left_out or not line.startswith(f"{left_out} =")]
    (tmp_path / "crawler.toml").write_text("\n".join(kept))
    done = typed(*words, *WITH)
    assert done.code == 2, done
    assert said in " ".join(done.err.split())
    assert done.err.count("error:") == 1
    assert not (tmp_path / ".crawler").exists()


def test_run_does_not_start_without_its_key(typed: Typed, tmp_path: Path) -> None:
    assert typed("seed", "https://a.test/").code == 0
    for replicas in ("1", "2"):
        done = typed("run", "--replicas", replicas, "--keep-settings", *WITH)
        assert (done.code, "there is no key at key.pem" in done.err, done.err.count("error:")) == (2, True, 1), done


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("directory", '"http://crawler.example/keys"', "is not an https URL"),
        ("directory", '"https://crawler.example:99999/"', "is not an https URL"),
        ("directory", '"https://a\\u0000b/"', "must not contain a NUL character"),
        ("lifetime", "5", "greater than or equal to 10"),
        ("lifetime", "100000", "less than or equal to 86400"),
        ("key", '"x"', "did you mean identity.keys"),
    ],
)
def test_a_malformed_setting_is_named_with_its_line(
    typed: Typed, tmp_path: Path, key: str, value: str, said: str
) -> None:
    (tmp_path / "crawler.toml").write_text(f"[identity]\n{key} = {value}\n")
    done = typed("config", "check", "crawler.toml")
    assert done.code == 2
    assert "crawler.toml:2" in done.err
    assert said in " ".join(done.err.split())


def test_doctor_names_the_key_that_signs(typed: Typed, tmp_path: Path) -> None:
    def finding() -> tuple[str, str]:
        found = json.loads(typed("doctor", *WITH, "--json").out)
        return next((one["result"], one["found"]) for one in found if one["check"] == "identity")

    where = f"in {tmp_path}, where relative paths are looked up"
    assert finding() == ("bad", f"there is no key at key.pem {where}: `crawler identity init key.pem` makes one")
    name = json.loads(typed("identity", "init", "key.pem", "--json").out)["thumbprint"]
    assert finding() == ("good", f"requests are signed with the key {name}")
    (tmp_path / "crawler.toml").write_text("")
    assert finding() == ("good", "requests are not signed")


def test_a_missing_package_is_named_with_how_to_install_it(tmp_path: Path) -> None:
    """Other commands work."""
    (tmp_path / "crawler.toml").write_text(SETTINGS)
    code = "import sys; sys.modules['cryptography.exceptions'] = None; from crawler.cli.main import main; main()"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("identity", "init")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "pip install 'peercrawl[identity]'" in done.stderr
    done = run("config", "explain", "identity")
    assert done.returncode == 0, done.stderr
