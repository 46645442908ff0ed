"""`crawler try`: fetches one page and shows what handlers and settings make of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
import typer

from crawler import logs
from crawler.app.signals import run_until_signal
from crawler.cli.crawl import Allow, App, HostMap, Port
from crawler.cli.shared_options import AsJson, SettingsFile, flags
from crawler.cli.terminal import Terminal, print_json
from crawler.settings.load import load
from crawler.wording import count_of

SHOWN = 20
"""URLs that are shown of each list. With --json, all are."""


def try_(
    url: Annotated[str, typer.Argument(help="URL to fetch.")],
    app: App = None,
    settings: SettingsFile = None,
    host_map: HostMap = None,
    allow: Allow = None,
    port: Port = None,
    json: AsJson = False,
) -> None:
    """Fetch one page, as a crawl would, and show its items, why there are not more, its links, and what would be queued.

    It obeys robots.txt, makes one request for the page, follows no redirect, and keeps nothing. The exit code is 1 if the
    page was not fetched, or its handler failed.

    [bold]Example[/bold]

        crawler try https://example.com/product/1 --settings shop.toml
        crawler try https://example.com/product/1 --app shop:router
    """
    from crawler.app.trial import try_url  # noqa: PLC0415 - imports the engine; the help does not need it

    loaded = load(settings, flags(handlers={"app": app}, fetch={"host_map": host_map})).adding(allow or (), port or ())
    logs.configure(loaded.replica.log_format, "error")
    found = run_until_signal(try_url(url, loaded))
    if json:
        print_json(found)
    else:
        terminal = Terminal(soft_wrap=True)
        status = "no response" if found.status is None else f"status {found.status}"
        terminal.print(f"{found.url}: {found.outcome} ({found.reason}), {status}, {found.content_type or 'no type'}")
        if found.title:
            terminal.print(f"title: {found.title}")
        if found.handler_error:
            terminal.print(f"handler failed: {found.handler_error}")
        terminal.print(f"{count_of(len(found.items), 'item')}")
        for item in found.items:
            terminal.print(f"  {item['data_set']}: {msgspec.json.encode(item['item']).decode()}")
        if found.rejected_count:
            terminal.print(f"{count_of(found.rejected_count, 'item')} rejected")
            for line in found.rejected:
                terminal.print(f"  {line}")
        for line in found.findings:
            terminal.print(line)
        dropped = ", ".join(f"{reason} {count:,}" for reason, count in sorted(found.dropped.items()))
        terminal.print(
            f"{count_of(len(found.links), 'link')}" + (f", of which are not followed: {dropped}" if dropped else "")
        )
        for line in _listed([f"{one['url']} (priority {one['priority']:g})" for one in found.queued]):
            terminal.print(line)
    if found.outcome != "done":
        raise typer.Exit(1)


def _listed(urls: list[str]) -> Iterator[str]:
    yield f"{count_of(len(urls), 'URL')} would be queued"
    yield from (f"  {url}" for url in urls[:SHOWN])
    if len(urls) > SHOWN:
        yield f"  and {len(urls) - SHOWN:,} more (--json shows all)"
