"""`crawler identity`: what each command prints and writes, and how mistakes are worded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from crawler.cli.identity import EXAMPLE
from tests.e2e.harness import Running, wait_until
from tests.identity import site
from tests.ports import free_port
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


def test_a_request_verifies_with_the_file_that_is_published(typed: Typed, tmp_path: Path) -> None:
    """Given a written directory, then a request for any URL verifies, and the head of that request in a file, too."""
    typed("identity", "init", "key.pem")
    assert typed("identity", "directory", "www", *WITH).code == 0
    published, headers = (tmp_path / "www" / f"http-message-signatures-directory{end}" for end in ("", ".headers"))
    fields = dict(line.split(": ", 1) for line in headers.read_text().splitlines())
    lower = {name.lower(): value for name, value in fields.items()}
    now = int(lower["signature-input"].partition("created=")[2].partition(";")[0])
    assert site.check_directory("crawler.example", lower, published.read_bytes(), now)
    done = typed("identity", "verify", "https://a.test/x?y", *WITH, "--keys", str(published))
    assert (done.code, done.out.splitlines()[0]) == (0, "verified")
    assert "directory: https://crawler.example/keys" in done.out
    found = json.loads(typed("identity", "verify", "http://a.test", *WITH, "--keys", str(published), "--json").out)
    assert (found["outcome"], found["signatures"][0]["covers"][:2]) == ("verified", ["@method", "@authority"])


@pytest.mark.parametrize(
    ("head", "code", "said"),
    [
        ("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 1, "unverified: the message is not signed"),
        ("GET / HTTP/1.1\r\n\r\n", 1, "unverified: the request has no Host field"),
        ("", 1, "unverified: the request has no Host field"),
        (
            'Host: a.test\nSignature-Agent: sig1="https://b.test/"\nSignature: sig1=:AAAA:\nSignature-Input: '
            'sig1=("@authority" "signature-agent";key="sig1");created=1;expires=2;keyid="x";tag="web-bot-auth"\n',
            1,
            "invalid: the signature expired",
        ),
    ],
)
def test_verify_tells_invalid_from_unverified(typed: Typed, tmp_path: Path, head: str, code: int, said: str) -> None:
    (tmp_path / "head.txt").write_text(head)
    done = typed("identity", "verify", "head.txt")
    assert (done.code, done.out.startswith(said)) == (code, True), done
    outcome = json.loads(typed("identity", "verify", "head.txt", "--json").out)["outcome"]
    assert outcome == said.partition(":")[0]


def test_a_request_of_the_past_is_verified_at_its_time(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "head.txt").write_text(
        'Host: a.test\nSignature-Agent: sig1="https://b.test/"\nSignature: sig1=:AAAA:\nSignature-Input: '
        'sig1=("@authority" "signature-agent";key="sig1");created=1;expires=2;keyid="x";tag="web-bot-auth"\n'
    )
    (tmp_path / "keys.json").write_text('{"keys":[]}')
    done = typed("identity", "verify", "head.txt", "--at", "1970-01-01T00:00:01", "--keys", "keys.json")
    assert (done.code, "unverified: the key x is not in keys.json" in done.out) == (1, True)
    for body, said in (("[" * 30_000, "unverified: keys.json is not a JSON Web Key Set"), (" " * 70_000, "is longer")):
        (tmp_path / "keys.json").write_text(body)
        done = typed("identity", "verify", "head.txt", "--at", "1970-01-01T00:00:01", "--keys", "keys.json")
        assert (done.code, said in done.out) == (1, True), done
    done = typed("identity", "verify", "head.txt", "--at", "1970-01-01T00:00:01", "--keys", "none.json")
    assert (done.code, "cannot read none.json: No such file or directory; name a file with" in done.err) == (2, True)


def test_verify_does_not_reach_into_the_network_of_its_user(typed: Typed, tmp_path: Path) -> None:
    """The URL of the directory is what a stranger wrote into a request."""
    typed("identity", "init", "key.pem")
    settings = SETTINGS.replace("crawler.example/keys", "127.0.0.1/keys")
    (tmp_path / "crawler.toml").write_text(settings)
    done = typed("identity", "verify", "https://a.test/", *WITH)
    assert (done.code, "forbidden_address" in done.out) == (1, True), done


@pytest.mark.parametrize(
    ("words", "left_out", "said"),
    [
        (("identity", "directory"), "keys", "set identity.keys"),
        (("identity", "serve"), "directory", "set identity.directory"),
        (("identity", "verify", "https://a.test/"), "keys", "set identity.keys"),
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


def test_the_directory_is_served_by_a_process_until_it_is_stopped(typed: Typed, tmp_path: Path) -> None:
    typed("identity", "init", "key.pem")
    words = [sys.executable, "-m", "crawler", "identity", "serve", "--listen", "127.0.0.1:0", *WITH]
    server = Running(words, tmp_path, "serve", {})
    try:
        wait_until(lambda: "/.well-known/" in server.out, "the server")
        url = server.out.split("at ")[1].split()[0]
        with urllib.request.urlopen(url) as response:
            assert site.keys_in(response.read())
        server.send(signal.SIGTERM)
        assert server.wait().code == 0
    finally:
        if server.is_running:
            server.kill()


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


@pytest.mark.parametrize("missing", ["cryptography.exceptions", "http_sf"])
def test_a_missing_package_is_named_with_how_to_install_it(tmp_path: Path, missing: str) -> None:
    """Other commands work."""
    (tmp_path / "crawler.toml").write_text(SETTINGS)
    code = f"import sys; sys.modules[{missing!r}] = None; from crawler.cli.main import main; main()"

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *words]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run("identity", "init")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "pip install 'peercrawl[identity]'" in done.stderr
    done = run("config", "explain", "identity")
    assert done.returncode == 0, done.stderr


def test_the_own_directory_may_be_at_any_port(typed: Typed, tmp_path: Path) -> None:
    """`fetch.ports` is for URLs of strangers, such as the directory that somebody else's request names."""
    typed("identity", "init", "key.pem")
    port = free_port()
    own = f'directory = "https://127.0.0.1:{port}/keys"'
    text = (tmp_path / "crawler.toml").read_text().replace('directory = "https://crawler.example/keys"', own)
    (tmp_path / "crawler.toml").write_text(text + 'allow = ["127.0.0.1"]\n')
    told = typed("identity", "verify", "https://a.test/", *WITH).out
    assert "cannot be fetched" in told
    assert "forbidden_port" not in told
