"""The files of a finished volume, by their names."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.open_files import is_open
from crawler.sinks.segment import LINES

PARQUET = ".pages.parquet"


class FinishedVolume(NamedTuple):
    """The finished files of a volume."""

    folder: Path
    name: str

    @property
    def warcs(self) -> list[Path]:
        paths = (self.folder / (self.name + suffix) for suffix in WARC_SUFFIXES)
        return [path for path in paths if path.exists()]

    @property
    def lines(self) -> Path:
        return self.folder / (self.name + LINES)

    @property
    def parquet(self) -> Path:
        return self.folder / (self.name + PARQUET)


def volume_of(path: Path) -> str:
    """The name of the volume to which the finished file `path` belongs, "" if it belongs to none."""
    suffix = next((suffix for suffix in (*WARC_SUFFIXES, LINES, PARQUET) if path.name.endswith(suffix)), "")
    return "" if not suffix or is_open(path) else path.name.removesuffix(suffix)
