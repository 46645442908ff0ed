"""Somebody writes over a key of a crawl, and the operator types commands: none ends with a traceback, what
goes wrong is said with the name of the key, and `crawler repair --evicted` mends it."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from crawler.errors import UserError
from frontier.crawls import Crawl
from frontier.errors import FrontierError, NoSuchCrawl, WrongType
from frontier.keys import types_of
from frontier.scripts import command
from frontier.store import RedisStore
from tests.cli.conftest import Hand
from tests.frontier.helpers import writes_over
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.long

SEEDS = ("https://a.test/1", "https://c.test/")
COMMANDS = (
    "status",
    "why https://a.test/1",
    "domains",
    "shards",
    "types",
    "pause",
    "resume",
    "config show",
    "retry a.test",
)


def type_all(hand: Hand) -> list[str]:
    """Type all commands. Returns what those say that fail."""
    said = []
    for words in COMMANDS:
        try:
            hand.type(*words.split())
        except (UserError, FrontierError) as error:
            said.append(str(error))
        except AssertionError as error:  # an exit code
            assert "Traceback" not in str(error)
    return said


KEYS = {**types_of("{x}:"), **types_of("{x:0}:")}


@pytest.mark.parametrize("key", KEYS)
def test_commands(key: str, valkey: ValkeyProcess, crawl_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.cli.repair.REPORT_S", 0.0)
    monkeypatch.setenv("CRAWLER_FRONTIER__SHARDS", "1")
    hand, kind = Hand(valkey.url, crawl_name), KEYS[key]
    key = key.replace("{x", f"{{{crawl_name}")
    hand.type("seed", *SEEDS)

    async def write_over(store: RedisStore, crawl: Crawl, number: int) -> None:
        fields = (await store.send([command("HKEYS", key)]))[0] if kind == "hash" else []
        await store.send(list(writes_over(key, kind, fields))[number])

    for number in range(2):
        hand.with_store(partial(write_over, number=number))
        said = type_all(hand)
        if number == 0:
            assert all(key in one for one in said), said
        try:
            hand.type("repair", "--evicted", "--accept-loss", *SEEDS)
        except (WrongType, NoSuchCrawl):
            raise
        except FrontierError as error:  # it says what to delete
            assert key in str(error)
            with redis.Redis.from_url(hand.url) as server:
                server.delete(key)
            hand.type("repair", "--evicted", "--accept-loss", *SEEDS)
        assert type_all(hand) == []
