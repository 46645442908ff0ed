"""The settings of an archive, as one value."""

from __future__ import annotations

from pathlib import Path

import msgspec

from crawler.parse.text import ContentWanted
from crawler.settings.load import CrawlSettings
from crawler.settings.tables import ArchiveTable, ReplicaTable

Fields = tuple[tuple[str, str], ...]
"""Names and values."""


class ArchiveSettings(ArchiveTable, frozen=True, kw_only=True):
    """What to write (the table `archive`), and where. `about`: additional named fields of the warcinfo record, such as
    operator and http-header-user-agent."""

    folder: Path
    crawl: str
    replica: str
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
    return ArchiveSettings(
        folder=local.out,
        crawl=crawl,
        replica=replica,
        about=(("http-header-user-agent", settings.fetch.user_agent_header), *about),
        **msgspec.structs.asdict(settings.archive),
    )
