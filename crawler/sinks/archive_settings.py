"""The settings of an archive, as one value. `crawler.app.archive_setup` makes it of `[archive]`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crawler.page import TextForm
from crawler.parse.content import ContentWanted
from crawler.sinks.compression import CompressionName
from crawler.sinks.near_duplicates import Treatment


class ArchiveSettings(msgspec.Struct, frozen=True):
    """What to write, and where. The fields are the settings with the same names in the table `archive`, which
    `crawler.settings.tables` describes, except:

    `max_age_s`: its `max_age`. `about`: additional named fields of the warcinfo record, such as operator and
    http-header-user-agent. `refetched`: URLs whose last record is remembered, in case the next response is 304.
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
    def content(self) -> ContentWanted:
        """What is extracted from pages."""
        return ContentWanted(self.text, self.structured, self.judges, self.soft_404 != "off")

    @property
    def judges(self) -> bool:
        """Whether the text of pages is compared with that of others."""
        return self.simhash or self.near_duplicates != "off" or self.soft_404 != "off"
