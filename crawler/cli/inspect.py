"""Commands that only look: `status`."""

from __future__ import annotations

import asyncio

import msgspec
import typer
from rich.console import Console

from crawler import overview
from crawler.cli.options import AsJson, CrawlName, DataDir, Redis, SettingsFile, flags
from crawler.jobs import open_store
from crawler.settings import Settings, load


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(status)


def status(
    crawl: CrawlName = "crawl",
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """How a crawl stands: its replicas, its books, who owns what.

    [bold]Example[/bold]

        crawler status --crawl news --redis redis://queue:6379/0
    """
    loaded = load(settings, flags(replica={"redis": redis, "data_dir": data_dir}))
    found = asyncio.run(_status(crawl, loaded))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        Console().print(overview.render(found))


async def _status(crawl: str, settings: Settings) -> overview.Overview:
    async with open_store(settings.replica) as store:
        return await overview.read(store, crawl)
