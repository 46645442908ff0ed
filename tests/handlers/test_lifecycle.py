"""Functions for the start and the end of a replica: what they share, and what happens if they fail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

from crawler import Context, Handle, ParsedPage, Router, UserError
from crawler.handlers.router import app_settings
from crawler.handlers.runner import HandlerRunner, Lifecycle
from crawler.settings.tables import HandlersTable
from tests.sinks.values import exchange, page


@dataclass
class Shop:
    database: str
    limit: int = 3


async def test_handlers_get_what_was_opened_and_it_is_closed_in_the_end() -> None:
    router, told = Router(settings=Shop), list[str]()

    @router.on_start
    async def opened(crawl: Context) -> None:
        crawl.state["pool"] = f"pool of {crawl.settings.database}"

    @router.on_end
    def closed(crawl: Context) -> None:
        told.append(f"closed {crawl.state['pool']}")

    @router.on_end
    async def flushed(crawl: Context) -> None:
        told.append("flushed")

    @router.handler()
    async def handler(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("x", {"pool": crawl.state["pool"], "limit": crawl.settings.limit})

    context = Context(app_settings(router, {"database": "shop"}), "crawl", "replica")
    lifecycle = Lifecycle(router, context, 5.0)
    await lifecycle.start()
    handled = await HandlerRunner(router, HandlersTable(), context).handle(page(exchange("x", b"")))
    assert handled.items[0].fields == {"pool": "pool of shop", "limit": 3}
    await lifecycle.stop()
    await lifecycle.stop()
    assert told == ["flushed", "closed pool of shop"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "[app]: Object missing required field `database`"),
        ({"database": "x", "limit": "many"}, "[app].limit: Expected `int`, got `str`"),
    ],
)
def test_settings_that_do_not_fit_are_refused(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as raised:
        app_settings(Router(settings=Shop), values)
    assert str(raised.value) == told
    assert app_settings(Router(), values) == values


async def test_a_start_that_fails_is_an_error_and_an_end_that_fails_is_not() -> None:
    router, told = Router(), list[str]()

    @router.on_start
    async def never(crawl: Context) -> None:
        await asyncio.Event().wait()

    @router.on_end
    def last(crawl: Context) -> None:
        told.append("last")

    @router.on_end
    def broken(crawl: Context) -> None:
        raise SystemExit(3)

    lifecycle = Lifecycle(router, Context(), 0.05)
    with pytest.raises(UserError, match=r"never.*on_start.*took longer than 0.05 s"):
        await lifecycle.start()
    await lifecycle.stop()
    assert told == ["last"]
