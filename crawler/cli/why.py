"""`crawler why`: explains what happened to a URL, or what would happen to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from crawler.cli.crawl_access import CrawlAccess, on_a_crawl
from crawler.cli.output_folders import check_exists, output_folders
from crawler.cli.seed_lists import about
from crawler.cli.shared_options import AsJson
from crawler.cli.terminal import emit
from crawler.errors import UserError
from crawler.observe.explain import Explanation, explain
from crawler.observe.explanation_rows import rows
from crawler.scope.seeds import BadSeedLine
from frontier.crawls import Crawl
from frontier.errors import BadUrl
from frontier.store import RedisStore

OutToSearch = Annotated[
    list[Path] | None,
    typer.Option(
        "--out",
        "-o",
        help="Output folder to search, once for each; default: those of the crawl.",
        show_default=False,
    ),
]


@on_a_crawl
def why(
    url: Annotated[str, typer.Argument(help="URL to look up; it is normalized like a link. https:// may be left out.")],
    *,
    access: CrawlAccess,
    out: OutToSearch = None,
    json: AsJson = False,
) -> None:
    """Explain why a URL was fetched or not, from the crawl's state, robots.txt and the output.

    [bold]Example[/bold]

        crawler why https://example.com/private/ --out pages
    """

    for folder in out or ():
        check_exists(folder)
    folders = out or output_folders(access.settings, access.crawl)

    async def work(store: RedisStore, opened: Crawl) -> Explanation:
        try:
            return await explain(store, opened, url, folders)
        except BadUrl as error:
            raise UserError(f"{url!r}: {about(BadSeedLine(0, url, error.reason))}") from error

    found = access.do(work)
    emit(found, json, render(found), wraps=False)


def render(found: Explanation) -> RenderableType:
    """Return the explanation as text for a terminal."""
    table = Table.grid(padding=(0, 3))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, text in rows(found):
        if text:
            table.add_row(name, Text(text))
    return Group(Text(found.verdict, style="bold"), table)
