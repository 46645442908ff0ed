"""`crawler refresh`: makes known pages due now."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Annotated

import msgspec
import typer
from rich.text import Text

from crawler.cli.control import domain_named
from crawler.cli.crawl_access import CrawlAccess, on_a_crawl, titled
from crawler.cli.refresh_reasons import Asked, RefreshReasons
from crawler.cli.seed_lists import about
from crawler.cli.shared_options import AsJson
from crawler.cli.terminal import emit
from crawler.cli.unknown_names import note
from crawler.errors import UserError
from crawler.scope.seeds import BadSeedLine, url_named
from crawler.settings.load import CrawlSettings
from crawler.settings.policies import url_rules
from crawler.wording import count_of
from frontier.crawls import Crawl, crawl_clock
from frontier.errors import BadInput, BadUrl
from frontier.known_pages import domains_with_known_pages, refresh_domain, refresh_matching, refresh_page
from frontier.store import RedisStore
from frontier.urls import Url, UrlPattern

OFF = "the crawl visits no pages again: set recrawl.rules with `crawler config apply`"


class Refreshed(msgspec.Struct, frozen=True):
    """What `crawler refresh` has done. `domain`: null for all; `refreshed`: how many pages became due; `reason`: why none
    did."""

    crawl: str
    domain: str | None
    refreshed: int
    reason: str = ""


@on_a_crawl
def refresh(
    url: Annotated[str | None, typer.Argument(help="URL of one page.", metavar="URL", show_default=False)] = None,
    *,
    access: CrawlAccess,
    domain: Annotated[
        str | None, typer.Option("--domain", help="All known pages of this domain.", show_default=False)
    ] = None,
    match: Annotated[
        str | None,
        typer.Option(
            help="Only known pages whose URL matches this regular expression; without --domain, those of all domains.",
            metavar="REGEX",
            show_default=False,
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Visit a known page now, or those of a domain or of all domains, instead of when their next visits are due.

    This needs a crawl with `recrawl.rules`. Delays and limits stay. Pages that are queued are left as they are.

    [bold]Examples[/bold]

        crawler refresh https://example.org/news

        crawler refresh --domain example.org

        crawler refresh --match '/news/[0-9]+$'
    """
    if (url is None) == (domain is None and match is None):
        raise UserError("name either a URL, or pages with --domain, --match or both")
    wanted = (lambda url: True) if match is None else _matching(match)
    named = None if domain is None else domain_named(domain)

    async def work(store: RedisStore, opened: Crawl) -> tuple[Refreshed, bool]:
        settings = CrawlSettings.from_json(opened.settings)
        page = None if url is None else _page(url, settings)
        clock = await crawl_clock(store, opened)
        asked = Asked(page, page.domain if page else named, match, wanted)
        domains = set() if asked.domain else {one async for one in domains_with_known_pages(store, opened.keys)}
        number, reason = await _refresh(store, opened, asked, domains, clock.now_ms()), ""
        if not number:
            is_on = bool(settings.recrawl.rules)
            reason = await RefreshReasons(store, opened, clock).find(asked, domains) if is_on else OFF
        return Refreshed(access.crawl, asked.domain, number, reason), bool(settings.recrawl.rules)

    result, is_on = access.do(work)
    if result.refreshed and not is_on:
        note(OFF)
    done = f"{titled(access.crawl)}: refresh: {count_of(result.refreshed, 'page')} made due"
    emit(result, json, Text(f"{done}: {result.reason}" if result.reason else done))


async def _refresh(store: RedisStore, opened: Crawl, asked: Asked, domains: Collection[str], now_ms: int) -> int:
    keys = opened.keys
    if asked.page is not None:
        return await refresh_page(store, keys, asked.page.href, asked.page.domain, now_ms)
    if asked.wish is None:
        return await refresh_domain(store, keys, asked.domain or "", now_ms)
    named = [asked.domain] if asked.domain else domains
    return sum([await refresh_matching(store, keys, one, asked.is_wanted, now_ms) for one in named])


def _matching(pattern: str) -> Callable[[str], bool]:
    try:
        return UrlPattern(pattern).is_in
    except BadInput as error:
        raise UserError(f"--match: {error}") from error


def _page(url: str, settings: CrawlSettings) -> Url:
    try:
        return url_named(url, url_rules(settings))
    except BadUrl as error:
        raise UserError(f"{url!r}: {about(BadSeedLine(0, url, error.reason))}") from error
