"""Turns settings into those of the archive. Commands that finish or rewrite output need them without the engine."""

from __future__ import annotations

import msgspec

from crawler.settings.load import CrawlSettings
from crawler.settings.policies import refetched
from crawler.settings.tables import ReplicaTable
from crawler.sinks.archive_settings import ArchiveSettings

Fields = tuple[tuple[str, str], ...]
"""Names and values."""


def archive_settings(
    crawl: str, replica: str, settings: CrawlSettings, local: ReplicaTable, about: Fields = ()
) -> ArchiveSettings:
    """Return the settings of the archive. `about`: more fields of its warcinfo records."""
    archive = msgspec.structs.asdict(settings.archive)
    return ArchiveSettings(
        folder=local.out,
        crawl=crawl,
        replica=replica,
        max_age_s=settings.archive.max_age,
        refetched=refetched(settings),
        about=(("http-header-user-agent", settings.fetch.user_agent_header), *about),
        # The others have the same names.
        **{key: value for key, value in archive.items() if key not in ("max_age", "on_page", "sinks", "via")},
    )
