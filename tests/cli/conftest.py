"""A crawl on a real Valkey, and a helper that runs commands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from frontier.crawls import Crawl, open_crawl
from frontier.store import RedisStore, connect
from tests.valkey import ValkeyProcess


class Hand:
    """Runs `crawler ... --crawl NAME --redis URL`."""

    def __init__(self, url: str, crawl: str) -> None:
        self.url = url
        self.crawl = crawl
        self._runner = CliRunner()

    def type(self, *words: str, here: bool = True) -> str:
        """Return what a command prints. `here`: add the options that select the crawl. Raises what the command raises."""
        place = ("--crawl", self.crawl, "--redis", self.url) if here else ()
        result = self._runner.invoke(app, [*words, *place], catch_exceptions=False, env={"COLUMNS": "160"})
        assert result.exit_code == 0, result.output
        return result.stdout

    def json(self, *words: str, here: bool = True) -> Any:
        return json.loads(self.type(*words, "--json", here=here))

    def with_store(self, work: Callable[[RedisStore, Crawl], Any]) -> Any:
        """The result of a coroutine function on the crawl's store."""

        async def connected() -> Any:
            store = await connect(self.url)
            try:
                return await work(store, await open_crawl(store, self.crawl))
            finally:
                await store.close()

        return asyncio.run(connected())


@pytest.fixture
def hand(valkey: ValkeyProcess, crawl_name: str) -> Hand:
    """Return a helper for a crawl with four seeds in three domains and no replicas."""
    made = Hand(valkey.url, crawl_name)
    made.type("seed", "https://a.test/1", "https://a.test/2", "https://www.b.test/", "https://c.test/")
    return made
