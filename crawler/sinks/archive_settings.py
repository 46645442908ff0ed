"""The settings of an archive, as one value."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crawler.page import TextForm
from crawler.parse.text import ContentWanted
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ReplicaTable
from crawler.sinks.compression import CompressionName
from crawler.sinks.near_duplicates import Treatment

Fields = tuple[tuple[str, str], ...]
"""Names and values."""


class ArchiveSettings(msgspec.Struct, frozen=True):
    """What to write, and where. The fields are the settings with the same names in the table `archive`, which
    `crawler.settings.tables` describes, except:

    `max_age_s`: its `max_age`. `about`: additional named fields of the warcinfo record, such as operator and
    http-header-user-agent.
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
    about: Fields = ()

    @property
    def content(self) -> ContentWanted:
        """What is extracted from pages."""
        return ContentWanted(self.text, self.structured, self.judges, self.soft_404 != "off")

    @property
    def judges(self) -> bool:
        """Whether the text of pages is compared with that of others."""
        return self.simhash or self.near_duplicates != "off" or self.soft_404 != "off"


def archive_settings(
    crawl: str, replica: str, settings: CrawlSettings, local: ReplicaTable, about: Fields = ()
) -> ArchiveSettings:
    """Return the settings that follow from `[archive]` and `[replica]`. `about`: more fields of the warcinfo records."""
    archive = msgspec.structs.asdict(settings.archive)
    return ArchiveSettings(
        folder=local.out,
        crawl=crawl,
        replica=replica,
        max_age_s=settings.archive.max_age,
        about=(("http-header-user-agent", settings.fetch.user_agent_header), *about),
        # The others have the same names.
        **{
            key: value
            for key, value in archive.items()
            if key not in ("max_age", "on_page", "requisites", "sinks", "via")
        },
    )
