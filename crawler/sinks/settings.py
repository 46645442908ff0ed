"""The settings of an archive."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crawler.sinks.compression import CompressionName
from crawler.sinks.content import TextForm
from crawler.sinks.near_duplicates import Treatment


class ArchiveSettings(msgspec.Struct, frozen=True):
    """What to write, and where.

    - `warc`, `pages`: write WARC files and JSON lines.
    - `max_bytes`, `max_age_s`: size in bytes and age in seconds at which a file is finished. Both are checked before a
      group is written, so a file may be larger by one group, and an idle file stays open until the archive stops.
    - `fsync`: wait for the disk after each group. Without it, a power failure (but not a crash) may lose the last groups.
    - `revisits`: how many bodies are remembered, at about 0.5 KB each, so that an identical body becomes a revisit record.
      0 writes every body.
    - `links`: list each page's links instead of only counting them.
    - `noarchive`: respect it. Such a page gets only its JSON line.
    - `index`: write a CDXJ index for each WARC file.
    - `metadata`: write a metadata record for each page, with its links.
    - `text`, `structured`: store each page's main text, as text or Markdown; its JSON-LD and OpenGraph data.
    - `simhash`: store a fingerprint of each page's text.
    - `near_duplicates`, `soft_404`: mark near-duplicate pages and error pages with status 200, or drop their bodies.
      `near_remembered`: number of earlier pages that a page is compared with.
    - `parquet`: write a Parquet file for each finished file of JSON lines.
    - `upload`: URL of the object store or folder to which finished files are copied; empty for none. `keep_local`: keep
      the local files after the upload.
    - `about`: additional named fields of the warcinfo record, such as operator and http-header-user-agent.
    - `refetched`: URLs whose last record is remembered, in case the next response is 304 Not Modified.
    """

    folder: Path
    crawl: str
    replica: str
    warc: bool = True
    pages: bool = True
    max_bytes: int = 1 << 30
    max_age_s: float = 3600.0
    fsync: bool = False
    revisits: int = 16_384
    links: bool = True
    noarchive: bool = True
    compression: CompressionName = "gzip"
    index: bool = True
    text: TextForm = "off"
    structured: bool = False
    simhash: bool = False
    near_duplicates: Treatment = "off"
    soft_404: Treatment = "off"
    near_remembered: int = 131_072
    parquet: bool = False
    upload: str = ""
    keep_local: bool = True
    metadata: bool = True
    about: tuple[tuple[str, str], ...] = ()
    refetched: frozenset[str] = frozenset()

    @property
    def judges(self) -> bool:
        """Whether the text of pages is compared with that of others."""
        return self.simhash or self.near_duplicates != "off" or self.soft_404 != "off"
