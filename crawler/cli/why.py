"""`crawler why`: what happened to a URL, or would happen to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from crawler.cli.options import AsJson, CrawlName, DataDir, Redis, SettingsFile, flags
from crawler.jobs import open_store
from crawler.settings import CrawlSettings, Settings, load
from crawler.why import Account, account, gather, render
from frontier.crawls import open_crawl

OutToSearch = Annotated[
    Path | None, typer.Option("--out", help="Folder with the output to search.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add this module's commands to `app`."""
    app.command()(why)


def why(
    url: Annotated[str, typer.Argument(help="The URL, in any spelling.")],
    crawl: CrawlName = "crawl",
    out: OutToSearch = None,
    redis: Redis = None,
    data_dir: DataDir = None,
    settings: SettingsFile = None,
    json: AsJson = False,
) -> None:
    """Why a URL was fetched, was not, or was not yet: from the books, its robots.txt and the output.

    [bold]Example[/bold]

        crawler why https://example.com/private/ --out pages
    """
    loaded = load(settings, flags(replica={"redis": redis, "data_dir": data_dir, "out": out}))
    found = asyncio.run(_explain(url, crawl, loaded))
    if json:
        typer.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        Console(soft_wrap=True, highlight=False).print(render(found))


async def _explain(url: str, crawl: str, settings: Settings) -> Account:
    async with open_store(settings.replica) as store:
        opened = await open_crawl(store, crawl)
        facts = await gather(store, opened, url, settings.replica.out)
        return account(facts, CrawlSettings.from_json(opened.settings))
