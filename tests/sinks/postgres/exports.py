"""Exports of the data set `shop` to a table."""

from __future__ import annotations

from collections.abc import Callable

from crawler.page import Item
from tests.sinks.test_items import item
from tests.typed import Finished

Export = Callable[..., Finished]


def product(url: str, /, **fields: object) -> Item:
    return item("shop", url=url, **fields)
