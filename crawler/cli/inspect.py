"""Commands that only look: `status`."""

from __future__ import annotations

import typer

from crawler import overview
from crawler.cli.options import AsJson, CrawlName, DataDir, Redis, SettingsFile
from crawler.cli.output import Where, emit


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
    where = Where(crawl, redis, data_dir, settings)
    found = where.do(lambda store, opened: overview.read(store, opened.name))
    emit(found, json, overview.render(found))
