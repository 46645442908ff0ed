"""`crawler list` and `crawler remove`."""

from __future__ import annotations

import asyncio

import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from frontier.scripts import command
from frontier.store import connect
from tests.cli.conftest import Hand


def keys_of(url: str, pattern: str) -> list[bytes]:
    async def read() -> list[bytes]:
        store = await connect(url)
        try:
            (keys,) = await store.send([command("KEYS", pattern)])
            return list(keys)
        finally:
            await store.close()

    return asyncio.run(read())


def test_a_removed_crawl_leaves_nothing_and_others_stay(hand: Hand) -> None:
    other = Hand(hand.url, f"{hand.crawl}.2")
    other.type("seed", "https://a.test/")
    listed = {line["crawl"]: line for line in hand.json("list", "--redis", hand.url, here=False)}
    assert (listed[hand.crawl]["seen"], listed[hand.crawl]["open"], listed[hand.crawl]["pages"]) == (4, 4, 0)
    assert listed[other.crawl]["open"] == 1
    assert hand.crawl in hand.type("list", "--redis", hand.url, here=False)
    others = keys_of(hand.url, f"{{{other.crawl}[}}:]*")
    hand.type("remove", "--yes")
    assert not keys_of(hand.url, f"{{{hand.crawl}[}}:]*")
    assert sorted(keys_of(hand.url, f"{{{other.crawl}[}}:]*")) == sorted(others)
    names = [line["crawl"] for line in hand.json("list", "--redis", hand.url, here=False)]
    assert hand.crawl not in names
    assert other.crawl in names


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_removed_without_consent(hand: Hand, answer: str) -> None:
    words = ["remove", "--crawl", hand.crawl, "--redis", hand.url]
    done = CliRunner().invoke(app, words, input=answer)
    assert "nothing was removed" in str(done.exception)
    assert "It is not finished" in done.output
    assert keys_of(hand.url, f"{{{hand.crawl}}}:meta")
