"""Options that many commands share."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crawler.cli.completion import log_formats, log_levels
from frontier.keys import check_crawl_name
from frontier.redis_url import url_to_copy


class Use(StrEnum):
    """The categories of `politeness.usage_preferences`, as an option needs them."""

    TRAIN_AI = "train-ai"
    AI_USE = "ai-use"
    SEARCH = "search"


def _checked(crawl: str) -> str:
    check_crawl_name(crawl)  # before anything is opened or created
    return crawl


CrawlName = Annotated[str, typer.Option("--crawl", callback=_checked, help="Name of the crawl.")]
OfCrawl = Annotated[
    str | None,
    typer.Option("--crawl", help="Crawl whose output to read, if several share the folder.", show_default=False),
]
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
LogLevel = Annotated[
    str | None,
    typer.Option("--log-level", help="debug, info, warning or error.", show_default=False, autocompletion=log_levels),
]
LogFormat = Annotated[
    str | None,
    typer.Option("--log-format", help="console or json.", show_default=False, autocompletion=log_formats),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def typed(redis: str | None, data_dir: Path | None, settings: Path | None) -> str:
    """Return the options that select a store as they were typed, to be copied: each after a space. USER and PASSWORD stand
    for the secrets in the URL."""
    words: list[str] = []
    for option, value in (
        ("--redis", redis and url_to_copy(redis)),
        ("--data-dir", data_dir),
        ("--settings", settings),
    ):
        words += [option, str(value)] if value else []
    return "".join(f" {shlex.quote(word)}" for word in words)


def flags(**tables: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the options that were given, as {table: {key: value}}. Options that were not given are None."""
    given = {table: {key: value for key, value in keys.items() if value is not None} for table, keys in tables.items()}
    return {table: keys for table, keys in given.items() if keys}
