"""Processes finished files: converts JSON lines to Parquet, and uploads files. This takes seconds, so it has a thread.

If the process ends first, the next start finds the files that still need processing. So that a store that cannot be
reached does not hold up the end of a replica, uploads that begin then have few retries, and none begins after one that
fails; an upload that is under way keeps its retries. Commands that upload what a store lacks try all files with all
retries.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crawler.logs import log
from crawler.sinks.archive_settings import ArchiveSettings
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.parquet import missing, require_pyarrow, write_parquet
from crawler.sinks.segment import LINES
from crawler.sinks.upload import FEW_RETRIES, Depot, UploadFailed

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
        """Process the finished `files` later."""
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
        """Return how many files cannot be uploaded now, when all others are processed. `hastily`: with few retries,
        and with none after an upload that fails."""
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
