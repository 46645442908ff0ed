"""`crawler reshard`, before it begins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from crawler.errors import UserError
from frontier.store import command, connect
from tests.cli.conftest import Hand
from tests.typed import Typed

MEGABYTE = 1_000_000


def limit_memory(hand: Hand, left: int) -> None:
    """Leave the server `left` bytes, or as many as it wants for 0."""

    async def limit() -> None:
        store = await connect(hand.url)
        used = int((await store.info("memory"))["used_memory"])
        await store.send([command("CONFIG", "SET", "maxmemory", used + left if left else 0)])
        await store.close()

    asyncio.run(limit())


@pytest.fixture
def crowded(hand: Hand) -> Iterator[Hand]:
    """A crawl on a server that has 20 MB of memory left."""
    limit_memory(hand, 20 * MEGABYTE)
    yield hand
    limit_memory(hand, 0)


def test_more_shards_than_redis_has_memory_for_are_refused_before_anything_changes(crowded: Hand) -> None:
    with pytest.raises(UserError) as refused:
        crowded.type("reshard", "--shards", "65536")
    said = re.fullmatch(
        r"65,536 shards would take 19\d\.\d MB of memory for 4 seen URLs, and Redis has (?:19|20)\.\d MB left; "
        r"choose at most ([\d,]+), or give it more memory",
        str(refused.value),
    )
    assert said, str(refused.value)
    status = crowded.json("status")
    assert (status["shards"], status["open"]) == (1024, 4)
    fitting = int(said[1].replace(",", ""))
    assert crowded.json("reshard", "--shards", str(fitting))["after"] == fitting


def test_fewer_shards_need_no_memory_for_fingerprints(crowded: Hand) -> None:
    assert crowded.json("reshard", "--shards", "1")["after"] == 1


def test_a_copy_for_which_memory_runs_out_says_how_to_go_on(crowded: Hand, typed: Typed) -> None:
    place = ("--crawl", crowded.crawl, "--redis", crowded.url)
    limit_memory(crowded, MEGABYTE // 10)
    told = typed("reshard", "--shards", "512", *place)
    assert told.code == 75
    assert "OOM" in told.err
    assert "not completed: the crawl stands still until this is completed" in " ".join(told.err.split())
    limit_memory(crowded, 20 * MEGABYTE)
    assert "was undone" in crowded.type("reshard", "--cancel")
