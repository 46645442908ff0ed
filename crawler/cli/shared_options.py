"""Options that many commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from frontier.keys import check_crawl_name


def _checked(crawl: str) -> str:
    check_crawl_name(crawl)  # before anything is opened or created
    return crawl


CrawlName = Annotated[str, typer.Option("--crawl", callback=_checked, help="Name of the crawl.")]
Redis = Annotated[
    str | None, typer.Option("--redis", help="Redis or Valkey URL; default: an embedded server.", show_default=False)
]
DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder where the embedded server stores the queue.", show_default=False),
]
SettingsFile = Annotated[
    Path | None, typer.Option("--settings", "-s", help="Settings file (TOML).", show_default=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def flags(**tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options that were given, as {table: {key: value}}. Options that were not given are None."""
    given = {table: {key: value for key, value in keys.items() if value is not None} for table, keys in tables.items()}
    return {table: keys for table, keys in given.items() if keys}
