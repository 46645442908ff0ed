"""`crawler refresh`: makes known pages due now."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli.crawl_access import CrawlAccess, on_a_crawl
from crawler.cli.notes import note
from crawler.cli.seed_lists import about
from crawler.cli.shared_options import AsJson
from crawler.cli.steer import domain_named
from crawler.cli.terminal import emit
from crawler.errors import UserError
from crawler.scope.seeds import SeedError, url_named
from crawler.settings.loading import CrawlSettings
from crawler.settings.policies import url_rules
from crawler.wording import count_of
from frontier.crawls import Crawl, crawl_clock
from frontier.errors import BadUrl
from frontier.refreshing import refresh_domain, refresh_page
from frontier.store import RedisStore

OFF = "the crawl visits no pages again: set recrawl.rules with `crawler config apply`"


class Refreshed(msgspec.Struct, frozen=True):
    """What `crawler refresh` has done. `refreshed`: how many pages became due."""

    crawl: str
    domain: str
    refreshed: int


@on_a_crawl
def refresh(
    url: Annotated[str | None, typer.Argument(help="URL of one page.", metavar="URL", show_default=False)] = None,
    *,
    access: CrawlAccess,
    domain: Annotated[
        str | None, typer.Option("--domain", help="All known pages of this domain.", show_default=False)
    ] = None,
    json: AsJson = False,
) -> None:
    """Visit a page again now, or all known pages of a domain, instead of when their next visits are due.

    This needs a crawl with `recrawl.rules`. Delays and limits stay. Pages that are queued are left as they are.

    [bold]Examples[/bold]

        crawler refresh https://example.org/news

        crawler refresh --domain example.org
    """
    if (url is None) == (domain is None):
        raise UserError("name a URL, or a domain with --domain")

    async def work(store: RedisStore, opened: Crawl) -> tuple[Refreshed, bool]:
        settings = CrawlSettings.from_json(opened.settings)
        clock = await crawl_clock(store, opened)
        if domain is not None:
            named = domain_named(domain)
            number = await refresh_domain(store, opened.keys, named, clock.now_ms())
        else:
            try:
                page = url_named(url or "", url_rules(settings))
            except BadUrl as error:
                raise UserError(f"{url!r}: {about(SeedError(0, url or '', error.reason))}") from error
            named = page.domain
            number = await refresh_page(store, opened.keys, page.href, named, clock.now_ms())
        return Refreshed(access.crawl, named, number), bool(settings.recrawl.rules)

    result, is_on = access.do(work)
    if not is_on:
        note(OFF)
    emit(result, json, Text(f"crawl {access.crawl}: refresh: {count_of(result.refreshed, 'page')} made due"))
