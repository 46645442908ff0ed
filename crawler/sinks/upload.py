"""Finished files into an object store, or another folder. A file counts as stored when it was read back and its size and
SHA-256 are those of the file here; only then may the one here go.

Object stores take a file whole or not at all, and a finished file never changes, so a second try is harmless. Needs
`obstore` (the extra `peercrawl[upload]`), which takes credentials and endpoints from the usual environment variables:
`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT`, `AZURE_STORAGE_ACCOUNT_NAME` and so on.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.errors import CrawlerError, UserError

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES = ("s3", "gs", "az", "abfs", "file")

_RETRIES = 8
_RETRY_FOR = timedelta(minutes=5)
_BLOCK = 1 << 20


class UploadFailed(CrawlerError):
    """Raised when a file is not in the store as it is here; the call may be made again."""


class Depot:
    """The place that finished files are copied to, under their own names."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self._store = store
        self._url = url

    def __repr__(self) -> str:
        return f"<Depot {self._url}>"

    @classmethod
    def at(cls, url: str) -> Depot:
        """The depot at `url`: s3://bucket/prefix, gs://, az://, or a folder. Raises UserError if that makes no sense."""
        try:
            from obstore.exceptions import BaseError  # noqa: PLC0415
            from obstore.store import LocalStore, from_url  # noqa: PLC0415
        except ImportError as error:
            raise UserError("archive.upload needs obstore: pip install 'peercrawl[upload]'") from error
        scheme, mark, rest = url.partition("://")
        try:
            if not mark or scheme == "file":
                return cls(LocalStore(Path(rest or scheme).absolute(), mkdir=True), url)
            if scheme not in SCHEMES:
                raise UserError(f"archive.upload: {url!r}: use s3://, gs://, az:// or a folder")
            retries = {"max_retries": _RETRIES, "retry_timeout": _RETRY_FOR}
            return cls(from_url(url, retry_config=retries), url)  # type: ignore[call-overload]
        except (BaseError, ValueError, OSError) as error:
            raise UserError(f"archive.upload: {url!r}: {error}") from error

    def has(self, path: Path) -> bool:
        """Whether a file of that name and size is there. Raises UploadFailed."""
        return self._size(path.name) == path.stat().st_size

    def store(self, path: Path) -> None:
        """Copy the file at `path`, and read it back. Raises UploadFailed, OSError."""
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        here = _fingerprint_of(path)
        try:
            if self._size(path.name) != here[0]:
                obstore.put(self._store, path.name, path)
            there = self._fingerprint(path.name)
        except BaseError as error:
            raise UploadFailed(f"{path.name} to {self._url}: {error}") from error
        if there != here:
            raise UploadFailed(f"{path.name} in {self._url} is not what was sent: {there[0]} bytes of {here[0]}")

    def _size(self, name: str) -> int | None:
        import obstore  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            return int(obstore.head(self._store, name)["size"])
        except FileNotFoundError:
            return None
        except BaseError as error:
            raise UploadFailed(f"{name} in {self._url}: {error}") from error

    def _fingerprint(self, name: str) -> tuple[int, str]:
        import obstore  # noqa: PLC0415

        size, state = 0, hashlib.sha256()
        for block in obstore.get(self._store, name).stream(min_chunk_size=_BLOCK):
            size += len(block)
            state.update(block)
        return size, state.hexdigest()


def _fingerprint_of(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
