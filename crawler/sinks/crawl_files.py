"""Tells the files of crawls apart that share an output folder, by the settings that each keeps there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crawler.sinks.compression import WARC_SUFFIXES
from crawler.sinks.finished_volume import volume_of
from crawler.sinks.line_search import is_of
from crawler.sinks.open_files import finished_path, open_and_finished
from crawler.sinks.segment import LINES, open_path

SETTINGS = ".settings.toml"
"""The end of the name of the file with the settings of a crawl."""


def crawls_in(folder: Path) -> set[str]:
    """The crawls that keep their settings in `folder`; of several, those with output there."""
    kept = _kept(folder)
    if len(kept) < 2:
        return kept
    return {_crawl_of(path, kept) for path in open_and_finished(folder, (*WARC_SUFFIXES, LINES))} - {""}


def files_of(folder: Path, suffixes: Iterable[str], crawl: str) -> list[Path]:
    """The files of `crawl` in `folder` with these `suffixes`, open ones included; if it is "", those of all."""
    found, crawls = open_and_finished(folder, suffixes), _kept(folder) | {crawl}
    return [path for path in found if _crawl_of(path, crawls) == crawl] if crawl else found


def _kept(folder: Path) -> set[str]:
    return {path.name.removesuffix(SETTINGS) for path in folder.glob(f"*{SETTINGS}")}


def _crawl_of(path: Path, crawls: Iterable[str]) -> str:
    """The one of `crawls` that has written the file `path`, by the lines of its volume; "" if it is none of them."""
    volume = volume_of(finished_path(path))
    lines = open_path(path.with_name(volume + LINES)) if volume else path
    return max((crawl for crawl in crawls if is_of(lines, crawl)), key=len, default="")
