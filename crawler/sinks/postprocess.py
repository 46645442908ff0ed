"""What becomes of finished files: a Parquet file of the JSON lines, a copy in an object store. In a thread of its own, as
it takes seconds and no page waits for it.

Nothing here is lost with the process: what was not done is found again at the next start, by what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from crawler.logs import log
from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.parquet import missing, require_pyarrow, write_parquet
from crawler.sinks.segment import LINES
from crawler.sinks.settings import ArchiveSettings
from crawler.sinks.upload import Depot, UploadFailed

_SUFFIXES = (*WARC_SUFFIXES, ".cdxj", LINES, ".pages.parquet")


class Finished:
    """Takes finished files. Raises UserError at once for settings that cannot be carried out."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        if settings.parquet:
            require_pyarrow()
        self._depot = Depot.at(settings.upload) if settings.upload else None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="finished")

    @property
    def _has_work(self) -> bool:
        return self._settings.parquet or self._depot is not None

    def take(self, files: Iterable[Path]) -> None:
        """See to the finished `files`, soon."""
        if self._has_work:
            self._thread.submit(self._carry_out, list(files))

    def catch_up(self) -> None:
        """See to the finished files whose writers had no time for it."""
        folder = self._settings.folder
        if self._depot is not None:
            # All that is here, in the order of names; what the store has already is only compared.
            self.take(path for path in sorted(folder.iterdir()) if path.name.endswith(_SUFFIXES))
        elif self._settings.parquet:
            self.take(missing(folder))

    async def stop(self) -> None:
        """Return when all files taken are seen to."""
        await asyncio.get_running_loop().run_in_executor(None, self._thread.shutdown)

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
        try:
            if self._settings.keep_local and depot.has(path):
                return
            depot.store(path)
        except (UploadFailed, OSError) as error:
            log(logging.ERROR, "upload_failed", file=path.name, error=error)
            return
        if not self._settings.keep_local:
            path.unlink(missing_ok=True)
