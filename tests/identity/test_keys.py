"""Key files: who can read them, and what each mistake says."""

from __future__ import annotations

import subprocess
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
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UserError
from crawler.identity.keys import SigningKey, make_key, read_key, read_keys

PKCS8 = (Encoding.PEM, PrivateFormat.PKCS8)
ED = Ed25519PrivateKey.generate()


def test_a_new_key_can_be_read_by_its_owner_alone(tmp_path: Path) -> None:
    made = make_key(tmp_path / "deep" / "key.pem")
    assert (tmp_path / "deep" / "key.pem").stat().st_mode & 0o777 == 0o600
    assert read_key(tmp_path / "deep" / "key.pem").thumbprint == made.thumbprint
    assert read_keys([tmp_path / "deep" / "key.pem"])[0].x == made.x


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "key.pem"
    make_key(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match="exists already and was not changed"):
        make_key(path)
    assert path.read_bytes() == before


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
        (b"", "no private key in PEM form"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "no private key in PEM form"),
        (b"\xff" * 100_000, "no private key in PEM form"),
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


def test_a_folder_is_no_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="Is a directory"):
        read_key(tmp_path)


def test_the_same_key_twice_is_no_rotation(tmp_path: Path) -> None:
    make_key(tmp_path / "a.pem")
    (tmp_path / "b.pem").write_bytes((tmp_path / "a.pem").read_bytes())
    (tmp_path / "b.pem").chmod(0o600)
    with pytest.raises(UserError, match="the same key as another file"):
        read_keys([tmp_path / "a.pem", tmp_path / "b.pem"])


@given(st.binary(max_size=600))
def test_both_implementations_make_the_same_signature(message: bytes) -> None:
    """Ed25519 is deterministic (RFC 8032): libsodium, which signs, and OpenSSL have to agree."""
    signature = SigningKey(ED).sign(message)
    assert signature == ED.sign(message)
    ED.public_key().verify(signature, message)
