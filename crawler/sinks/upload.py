"""Processes finished files in a thread: converts JSON lines to Parquet, and copies files to an object store or a
folder.

A copy is read back, and must have the same size and SHA-256 before the local file may be removed. If local files are
kept, one that is there with the same size is not read. Needs `obstore` (the extra `peercrawl[upload]`), which reads
credentials and endpoints from the usual environment variables.

If the process ends first, the next start finds the files that still need processing. So that a store that cannot be
reached does not hold up the end of a replica, uploads that begin then have few retries, and none begins after one that
fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import shlex
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.errors import CrawlerError, UserError
from crawler.logs import log
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.files import LINES, obstacle
from crawler.sinks.parquet import missing, require_pyarrow, write_parquet

if TYPE_CHECKING:
    from obstore.store import ObjectStore


SCHEMES = ("s3", "gs", "az", "abfs", "file")

RETRIES, FEW_RETRIES = 8, 2
"""How often a request to the store is repeated, usually, and at the end of a replica. If the store cannot be reached, 8
retries take up to some minutes, and 2 up to half a minute."""

_RETRY_FOR = timedelta(minutes=5)
_BLOCK = 1 << 20


class UploadFailed(CrawlerError):
    """Raised when a file could not be stored unchanged. The caller may repeat the call."""


def require_obstore() -> None:
    try:
        import obstore  # noqa: F401, PLC0415
    except ImportError as error:
        raise UserError("uploads need obstore: pip install 'peercrawl[upload]'") from error


def check_upload(url: str) -> None:
    """Raises UserError for a `url` that no depot has, and for a folder that can neither be written nor created."""
    require_obstore()
    scheme, colon, rest = url.partition(":")
    if colon and scheme in SCHEMES and not rest.startswith("//"):
        place = rest if scheme == "file" else rest.lstrip("/")
        raise UserError(f"two slashes must follow the colon: write {scheme}://{place}")
    folder = _folder(url)
    if folder is None and url.partition("://")[0] not in SCHEMES:
        raise UserError("use s3://, gs://, az:// or a folder")
    if folder is not None and (reason := obstacle(folder)):
        raise UserError(f"cannot write in {folder}: {reason}")


def _folder(url: str) -> Path | None:
    scheme, mark, rest = url.partition("://")
    return Path(os.path.expanduser(rest or scheme)) if not mark or scheme == "file" else None  # noqa: PTH111


class Depot:
    """The store to which finished files are copied, under their own names."""

    def __init__(self, store: ObjectStore, url: str) -> None:
        self._store = store
        self.url = url.partition("?")[0]  # for messages: a query may have keys

    def __repr__(self) -> str:
        return f"<Depot {self.url}>"

    @classmethod
    def at(cls, url: str, retries: int = RETRIES, given_as: str = "archive.upload") -> Depot:
        """The depot at `url`: s3://bucket/prefix, gs://, az:// or a folder. `given_as`: its setting. Raises UserError."""
        require_obstore()
        from obstore.exceptions import BaseError  # noqa: PLC0415
        from obstore.store import LocalStore, from_url  # noqa: PLC0415

        try:
            check_upload(url)
            if folder := _folder(url):
                return cls(LocalStore(folder.absolute(), mkdir=True), url)
            retry = {"max_retries": retries, "retry_timeout": _RETRY_FOR}
            return cls(from_url(url, retry_config=retry), url)  # type: ignore[call-overload]
        except (BaseError, ValueError, OSError, UserError) as error:
            raise UserError(f"{given_as}: {url!r}: {error}") from error

    def check(self) -> None:
        """Raises UploadFailed if the store cannot be reached, or cannot be read."""
        with self._translated("files"):
            self._size("peercrawl")

    def has(self, path: Path) -> bool:
        """Whether the store has a file with the name and size of `path`. Raises UploadFailed."""
        with self._translated(path.name):
            return self._size(path.name) == path.stat().st_size

    def store(self, path: Path, replaces: bool = False) -> None:
        """Copy the file at `path`, and read it back. `replaces`: also one of the same size. Raises UploadFailed,
        OSError."""
        import obstore  # noqa: PLC0415

        size, digest = 0, hashlib.sha256()
        here = _fingerprint_of(path)
        with self._translated(path.name):
            if replaces or self._size(path.name) != here[0]:
                obstore.put(self._store, path.name, path)
            for block in obstore.get(self._store, path.name).stream(min_chunk_size=_BLOCK):
                size += len(block)
                digest.update(block)
        if (size, digest.hexdigest()) != here:
            raise UploadFailed(f"{path.name} in {self.url} is not what was sent: {size} bytes of {here[0]}")

    def remove(self, name: str) -> None:
        """Remove the copy of the file called `name`, if there is one. Raises UploadFailed."""
        import obstore  # noqa: PLC0415

        with self._translated(name), contextlib.suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    def _size(self, name: str) -> int | None:
        import obstore  # noqa: PLC0415

        try:
            return int(obstore.head(self._store, name)["size"])
        except FileNotFoundError:
            return None

    @contextlib.contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        from obstore.exceptions import BaseError  # noqa: PLC0415

        try:
            yield
        except (BaseError, FileNotFoundError) as error:  # the latter for a bucket that does not exist
            reason = str(error).partition("\n")[0]  # after it, obstore shows its own structures
            raise UploadFailed(f"{name} to {self.url}: {reason}") from error


def _fingerprint_of(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


TOLD_AFTER_S = 2.0
"""Seconds that the end waits for uploads before it says so."""

_SUFFIXES = (*WARC_SUFFIXES, ".cdxj", LINES, ".pages.parquet")


class PostProcessor:
    """Processes finished files in the background. The constructor raises UserError for impossible settings."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        if settings.parquet:
            require_pyarrow("archive.parquet = true")
        self._depot = Depot.at(settings.upload) if settings.upload else None
        self._is_hasty = self._has_given_up = False
        self._left: set[Path] = set()  # files that are not known to be in the store
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="finished")

    @property
    def _has_work(self) -> bool:
        return self._settings.parquet or self._depot is not None

    def take(self, files: Iterable[Path]) -> None:
        if self._has_work:
            self._thread.submit(self._carry_out, list(files))

    def catch_up(self) -> None:
        """Process the files that earlier processes have finished but not processed."""
        folder = self._settings.folder
        if self._depot is not None:
            self._thread.submit(self._check)
            # All files in the folder. Only the size is compared for those that are already in the store.
            self.take(path for path in sorted(folder.iterdir()) if path.name.endswith(_SUFFIXES))
        elif self._settings.parquet:
            self.take(missing(folder))

    async def stop(self, hastily: bool = True) -> int:
        """Return how many files cannot be uploaded when all others are. `hastily`: with few retries, none after a
        failure."""
        if self._depot is not None and hastily:
            self._is_hasty, self._depot = True, Depot.at(self._settings.upload, FEW_RETRIES)
        ending = asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)
        if not (await asyncio.wait([ending], timeout=TOLD_AFTER_S))[0]:
            log(logging.WARNING, "finishing_files", waits_for=self._depot.url if self._depot else "Parquet files")
        await ending
        if self._left:
            folder = self._settings.folder
            finish = shlex.join(["crawler", "finish", str(folder), "--crawl", self._settings.crawl])
            later = f"the next start with this output folder uploads them, or `{finish}`"
            log(logging.ERROR, "uploads_left", files=len(self._left), folder=folder, result=later)
        return len(self._left)

    def _check(self) -> None:
        """Report a wrong address at the start, and not when the first file is finished."""
        try:
            Depot.at(self._settings.upload, FEW_RETRIES).check()
        except UploadFailed as error:
            log(logging.ERROR, "upload_unreachable", error=error)

    def _carry_out(self, files: list[Path]) -> None:
        for path in [*files, *(self._parquet_of(files) if self._settings.parquet else ())]:
            if self._depot is not None:
                self._upload(self._depot, path)

    def _parquet_of(self, files: list[Path]) -> list[Path]:
        made = []
        for lines in (path for path in files if path.name.endswith(LINES)):
            try:
                made.append(write_parquet(lines))
            except (OSError, ValueError) as error:
                log(logging.ERROR, "parquet_failed", file=lines.name, error=error)
        return made

    def _upload(self, depot: Depot, path: Path) -> None:
        self._left.add(path)
        if self._has_given_up:
            return
        try:
            if not (self._settings.keep_local and depot.has(path)):
                depot.store(path)
        except (UploadFailed, OSError) as error:
            log(logging.ERROR, "upload_failed", file=path.name, error=error)
            self._has_given_up = self._is_hasty
            return
        self._left.remove(path)
        if not self._settings.keep_local:
            path.unlink(missing_ok=True)
