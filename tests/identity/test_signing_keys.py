"""Key files: who can read them, and what each mistake says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from crawler.errors import UserError
from crawler.identity.keys import make_key, read_key, read_keys

PKCS8 = (Encoding.PEM, PrivateFormat.PKCS8)
ED = Ed25519PrivateKey.generate()


def test_a_new_key_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    made = make_key(tmp_path / "deep" / "key.pem")
    assert (tmp_path / "deep" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert read_key(tmp_path / "deep" / "key.pem").thumbprint == made.thumbprint
    assert read_keys([tmp_path / "deep" / "key.pem"])[0].x == made.x


def test_openssl_makes_and_reads_the_same_files(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours.pem", tmp_path / "theirs.pem"
    make_key(ours)
    subprocess.run(["openssl", "pkey", "-in", ours, "-noout"], check=True)
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", theirs], check=True)
    theirs.chmod(0o600)
    assert len(read_key(theirs).thumbprint) == 43


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"there is no key at .*key.pem: `crawler identity init .*key.pem` makes one"),
        (b"", "not a private key in PEM form"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key in PEM form"),
        (b"\xff" * 100_000, "not a private key in PEM form"),
        (
            ED.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
            "a public key, which cannot sign",
        ),
        (generate_private_key(SECP256R1()).private_bytes(*PKCS8, NoEncryption()), "is not an Ed25519 key"),
        (ED.private_bytes(*PKCS8, BestAvailableEncryption(b"x")), "has a passphrase"),
    ],
    ids=["missing", "empty", "damaged", "binary", "public", "another kind", "passphrase"],
)
def test_a_key_that_cannot_be_used_is_named_with_what_to_do(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "key.pem"
    if content is not None:
        path.write_bytes(content)
        path.chmod(0o600)
    with pytest.raises(UserError, match=said) as caught:
        read_key(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("mode", "good"), [(0o600, True), (0o400, True), (0o440, True), (0o644, False), (0o604, False)]
)
def test_a_key_that_everyone_can_read_is_refused(tmp_path: Path, mode: int, good: bool) -> None:
    """A group may read it: Kubernetes mounts secrets for the group of a pod."""
    path = tmp_path / "key.pem"
    make_key(path)
    path.chmod(mode)
    if good:
        read_key(path)
        return
    with pytest.raises(UserError, match=f"chmod 600 {path}"):
        read_key(path)


def test_a_folder_or_a_pipe_is_no_key(tmp_path: Path) -> None:
    """Nobody writes to the pipe, so reading it would wait forever."""
    os.mkfifo(tmp_path / "pipe.pem", 0o600)
    for path in (tmp_path, tmp_path / "pipe.pem"):
        with pytest.raises(UserError, match="is not a regular file"):
            read_key(path)
    for path in (tmp_path, Path()):
        with pytest.raises(UserError, match="is a folder: give the name of a file"):
            make_key(path)


def make_in_process(path: Path, before: str) -> subprocess.CompletedProcess[str]:
    """Make the key `path` in another process, after the statement `before`."""
    code = f"import os, resource, sys; from pathlib import Path; path = Path(sys.argv[1]); {before}"
    code += "; from crawler.identity.keys import make_key; make_key(path)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-B", "-c", code, path]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_key_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    """A process that may not write a byte to any file stands for a full disk."""
    path = tmp_path / "key.pem"
    done = make_in_process(path, "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))")
    assert f"cannot write the key to {path}: File too large" in done.stderr
    assert list(tmp_path.iterdir()) == []
    make_key(path)


def test_the_same_key_twice_is_no_rotation(tmp_path: Path) -> None:
    make_key(tmp_path / "a.pem")
    (tmp_path / "b.pem").write_bytes((tmp_path / "a.pem").read_bytes())
    (tmp_path / "b.pem").chmod(0o600)
    with pytest.raises(UserError, match="the same key as another file"):
        read_keys([tmp_path / "a.pem", tmp_path / "b.pem"])


def test_a_process_killed_while_it_writes_leaves_no_key_under_the_name(tmp_path: Path) -> None:
    """The process kills itself before the file is complete on the disk."""
    path = tmp_path / "key.pem"
    assert make_in_process(path, "os.fsync = lambda file: os.kill(os.getpid(), 9)").returncode == -9
    assert not path.exists()
    assert [one.stat().st_mode & 0o777 for one in tmp_path.iterdir()] == [0o600]
    assert make_key(path).thumbprint == read_key(path).thumbprint


def test_a_key_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    """Another process makes the same file between the first look and the name."""
    path = tmp_path / "key.pem"
    done = make_in_process(path, "os.fsync = lambda file: path.write_text('theirs')")
    assert f"{path} exists already and was not changed" in done.stderr
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]
