"""`crawler why`: explains what happened to a URL, or what would happen to it."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import Group
from rich.table import Table
from rich.text import Text

from crawler.cli.options import FOLDER, CrawlAccess, as_json, command, on_a_crawl
from crawler.cli.output_folders import check_exists, output_folders
from crawler.cli.text import about_url, emit
from crawler.errors import UserError
from crawler.observe.explain import Explanation, rows
from crawler.observe.explain import explain as explanation_of
from crawler.scope.seeds import BadSeedLine
from frontier.crawls import Crawl
from frontier.errors import BadUrl
from frontier.store import RedisStore


@command()
@click.argument("url", help="URL to look up; it is normalized like a link. https:// may be left out.")
@on_a_crawl
@click.option(
    "--out",
    "-o",
    type=FOLDER,
    multiple=True,
    help="Output folder to search, once for each; default: those of the crawl.",
)
@as_json
def why(url: str, access: CrawlAccess, out: tuple[Path, ...], as_json: bool) -> None:
    """Explain why a URL was fetched or not, from the crawl's state, robots.txt and the output.

    Example:

        crawler why https://example.com/private/ --out pages
    """
    for folder in out:
        check_exists(folder)
    folders = list(out) or output_folders(access.settings, access.crawl)

    async def explain(store: RedisStore, opened: Crawl) -> Explanation:
        try:
            return await explanation_of(store, opened, url, folders)
        except BadUrl as error:
            raise UserError(f"{url!r}: {about_url(BadSeedLine(0, url, error.reason))}") from error

    explanation = access.do(explain)
    table = Table.grid(padding=(0, 3))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in rows(explanation):
        if text:
            table.add_row(name, Text(text))
    emit(explanation, as_json, Group(Text(explanation.verdict, style="bold"), table), wraps=False)
