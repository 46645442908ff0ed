"""`crawler why`: what happened to a URL, or would happen to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crawler.cli.options import AsJson
from crawler.cli.output import Where, emit, on_a_crawl
from crawler.observe.explain import Account, account, gather, render
from crawler.settings.model import CrawlSettings
from frontier.crawls import Crawl
from frontier.store import RedisStore

OutToSearch = Annotated[
    Path | None, typer.Option("--out", help="Folder with the output to search.", show_default=False)
]


@on_a_crawl
def why(
    url: Annotated[str, typer.Argument(help="The URL, in any spelling.")],
    *,
    where: Where,
    out: OutToSearch = None,
    json: AsJson = False,
) -> None:
    """Why a URL was fetched, was not, or was not yet: from the crawl's counters, its robots.txt and the output.

    [bold]Example[/bold]

        crawler why https://example.com/private/ --out pages
    """

    async def explain(store: RedisStore, opened: Crawl) -> Account:
        facts = await gather(store, opened, url, out or where.settings.replica.out)
        return account(facts, CrawlSettings.from_json(opened.settings))

    found = where.do(explain)
    emit(found, json, render(found), wraps=False)
