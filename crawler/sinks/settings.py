"""What an archive is told."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crawler.sinks.compression import CompressionName
from crawler.sinks.content import TextForm
from crawler.sinks.near_duplicates import Treatment


class ArchiveSettings(msgspec.Struct, frozen=True):
    """What to write, and where.

    `max_bytes`: bytes after which a file is finished; looked at between groups, so a file may be larger by one group.
    `max_age_s`: the same by age; looked at when something is written, so an idle file stays open until the archive
    stops. `fsync`: wait for the disk at each group; without it a power failure, not a crash, can cost what was
    written last. `revisits`: how many bodies are remembered to write a revisit record for the next identical one, at
    about 0.5 KB each; 0 writes every body. `links`: list each page's links, not only their number. `noarchive`: obey
    it, which leaves the page with its JSON line alone. `compression`: of the WARC files;
    `compression_level`: of gzip, 0 (fast) to 3 (small).
    `index`: write a CDXJ index for each WARC file. `metadata`: write a metadata record for each page, with its links.
    `text`: keep each page's main text, or the Markdown of its main content; `structured`: its JSON-LD and OpenGraph data.
    `simhash`: keep a fingerprint of each page's text. `near_duplicates`, `soft_404`: mark pages that say what another one
    said, or that there is no such page, or leave out their bodies; `near_remembered`: pages compared with.
    `parquet`: make a Parquet file of each finished file of JSON lines.
    `upload`: URL of the object store or folder that finished files are copied to, "" for none; `keep_local`: keep them
    here, too. `about`: more named fields for the warcinfo record, such as operator and http-header-user-agent.
    `refetched`: URLs whose last record is remembered, for the answer that they were not modified.
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
    compression_level: int = 2
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
        """Whether the text of pages is looked at for its likeness to that of others."""
        return self.simhash or self.near_duplicates != "off" or self.soft_404 != "off"
