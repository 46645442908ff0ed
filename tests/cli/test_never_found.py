"""Fields of `[[extract]]` of which no page had a value are named."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from crawler.cli.screens import summary
from crawler.observe.status import Status, status
from frontier.crawls import Crawl, FieldTypes
from frontier.scripts import command
from frontier.store import RedisStore
from tests.cli.conftest import Hand

RULES = """\
[[extract]]
name = "shop"
[extract.fields]
title = { css = "h1" }
price = { css = ".prise" }
kind = { value = "shop" }
[[extract]]
name = "other"
fields.name = { css = "h2" }
"""


def test_status_and_summary_name_fields_that_were_never_found(hand: Hand, tmp_path: Path) -> None:
    """Those of a data set without items are not named: it is shown as "none"."""
    (tmp_path / "c.toml").write_text(RULES)
    hand.type("config", "apply", str(tmp_path / "c.toml"))

    async def found(store: RedisStore, crawl: Crawl) -> Status:
        await store.send([command("HSET", crawl.keys.shards[0].stats, "items:shop", 3)])
        await FieldTypes(store, crawl.keys).keep({("shop", "title"): "text"})
        return await status(store, crawl)

    seen = hand.with_store(found)
    assert seen.never_found == ["shop.price"]
    assert "never found  shop.price: no page had a value; `crawler try URL` shows" in hand.type("status")
    console = Console(width=160, file=io.StringIO(), record=True)
    console.print(summary(seen, tmp_path))
    assert "shop.price: no page had a value" in console.export_text()
