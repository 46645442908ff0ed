"""The signing keys of an operator: Ed25519 keys in PEM files (PKCS #8) that only their owner can read, or also a group:
Kubernetes mounts secrets for the group of a pod.

`openssl genpkey -algorithm ed25519` makes such files, too. A key is named by its thumbprint (RFC 7638, and RFC 8037
appendix A.3 for Ed25519): the hash of its public part as a JSON Web Key.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Sequence
from pathlib import Path

from crawler.errors import UserError

try:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
        load_pem_private_key,
    )
except ImportError as error:
    raise UserError("an identity needs the package cryptography: pip install 'peercrawl[identity]'") from error

PUBLISHED_KEYS = frozenset({"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"})
"""Thumbprints of keys whose private part everyone knows: test-key-ed25519 of RFC 9421 B.1.4, which many examples use."""

LONGEST_FILE = 16_384  # bytes; a PEM file with an Ed25519 key has about 120


class SigningKey:
    """A key that can sign. `thumbprint`: its name; `x`: its public part in base64url, as in a JSON Web Key."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private, self.public = private, private.public_key()
        self.x = base64url(self.public.public_bytes(Encoding.Raw, PublicFormat.Raw))
        self.thumbprint = thumbprint(self.x)

    def __repr__(self) -> str:
        return f"<SigningKey {self.thumbprint}>"

    def sign(self, message: bytes) -> bytes:
        """Return the signature of `message`, 64 bytes (RFC 8032 5.1.6)."""
        return self._private.sign(message)


def make_key(path: Path) -> SigningKey:
    """Make a key in a new file that only the owner can read. Raises UserError if it exists or cannot be written."""
    private = Ed25519PrivateKey.generate()
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    if path.is_dir():
        raise UserError(f"{path} is a folder: give the name of a file for the key")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path.parent}: {error.strerror}; give another name") from error
    try:
        _write_new(path, pem)
    except FileExistsError as error:
        raise UserError(
            f"{path} exists already and was not changed: give another name, or use the key that it has"
        ) from error
    except OSError as error:
        raise UserError(f"cannot write the key to {path}: {error.strerror}; give another name") from error
    return SigningKey(private)


def _write_new(path: Path, data: bytes) -> None:
    """Write a new file, whole or not at all."""
    file, unnamed = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # only the owner can read it
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(file)
        os.link(unnamed, path)  # unlike a rename, this fails if there is a file
    finally:
        Path(unnamed).unlink()


def read_keys(paths: Sequence[Path]) -> list[SigningKey]:
    """Read the keys in the files `paths`. Raises UserError if one cannot be used, or if two files have the same key."""
    keys = [read_key(path) for path in paths]
    names = [key.thumbprint for key in keys]
    for name, path in zip(names, paths, strict=True):
        if names.count(name) > 1:
            raise UserError(f"{path} has the same key as another file of identity.keys: remove one of them")
    return keys


def read_key(path: Path) -> SigningKey:
    """Read the key in the PEM file at `path`. Raises UserError if it cannot be used."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe to which nobody writes would block
        try:
            mode = os.fstat(file).st_mode
            pem = os.read(file, LONGEST_FILE) if stat.S_ISREG(mode) else b""
        finally:
            os.close(file)
    except FileNotFoundError as error:
        raise UserError(f"there is no key at {path}: `crawler identity init {path}` makes one") from error
    except OSError as error:
        raise UserError(f"cannot read the key at {path}: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise UserError(f"{path} is not a regular file: name the file with the private key")
    if b"PUBLIC KEY" in pem:
        raise UserError(f"{path} has a public key, which cannot sign: name the file with the private key")
    if stat.S_IMODE(mode) & stat.S_IRWXO:
        raise UserError(f"all users of this machine can read the key at {path}: chmod 600 {path}")
    try:
        private = load_pem_private_key(pem, password=None)
    except TypeError as error:
        raise UserError(
            f"the key at {path} has a passphrase, which nobody could type here: "
            f"openssl pkey -in {path} -out NEW removes it"
        ) from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise UserError(
            f"{path} is not a private key in PEM form: `crawler identity init` makes one under another name"
        ) from error
    if not isinstance(private, Ed25519PrivateKey):
        raise UserError(
            f"the key at {path} is not an Ed25519 key: `crawler identity init` makes one under another name"
        )
    key = SigningKey(private)
    if key.thumbprint in PUBLISHED_KEYS:
        raise UserError(
            f"{path} has the example key of RFC 9421, which everyone has: `crawler identity init` makes one"
        )
    return key


def thumbprint(x: str) -> str:
    """Return the thumbprint of the Ed25519 key with the public part `x`: the members in the order of RFC 7638 3.2."""
    jwk = f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'
    return base64url(hashlib.sha256(jwk.encode()).digest())


def base64url(data: bytes) -> str:
    """Return `data` in base64url without padding (RFC 7515 2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def base64(data: bytes) -> str:
    """Return `data` in base64, as byte sequences of structured fields have it (RFC 9651 3.3.5)."""
    return b64encode(data).decode()
