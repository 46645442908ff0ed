"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import msgspec
import typer
from rich.console import Console, RenderableType

from crawler.cli.options import flags
from crawler.errors import UserError
from crawler.jobs import open_store
from crawler.settings import load
from frontier.crawls import Crawl, open_crawl
from frontier.errors import BadUrl
from frontier.store import RedisStore
from frontier.urls import canonicalize

T = TypeVar("T")


class Where:
    """The crawl that a command is about: its name, and the options that say where it is."""

    def __init__(self, crawl: str, redis: str | None, data_dir: Path | None, settings: Path | None) -> None:
        self.crawl = crawl
        self.settings = load(settings, flags(replica={"redis": redis, "data_dir": data_dir}))

    def do(self, work: Callable[[RedisStore, Crawl], Awaitable[T]]) -> T:
        """The result of `work` on the opened crawl. Raises FrontierError or UserError."""

        async def opened() -> T:
            async with open_store(self.settings.replica) as store:
                return await work(store, await open_crawl(store, self.crawl))

        return asyncio.run(opened())


def emit(value: object, as_json: bool, screen: RenderableType) -> None:
    """Print `value` as JSON, or `screen`."""
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())
    else:
        Console(highlight=False).print(screen)


def domain_named(text: str) -> str:
    """The domain that an operator means by a domain, a host or a URL. Raises UserError."""
    try:
        return canonicalize(text if "://" in text else f"https://{text}/").domain
    except BadUrl as error:
        raise UserError(f"{text!r} is no domain; write it as example.org") from error
