"""`crawler reshard`, before it begins."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from crawler.errors import UserError
from frontier.crawls import Crawl
from frontier.scripts import command
from frontier.store import RedisStore, connect
from tests.cli.conftest import Hand
from tests.typed import Typed

MEGABYTE = 1_000_000


def limit_memory(hand: Hand, left: int) -> None:
    """Leave the server `left` bytes, or as many as it wants for 0. It frees the buffers of ended connections late."""

    async def limit() -> None:
        store = await connect(hand.url)
        readings = []
        for _ in range(10):
            readings.append(int((await store.info("memory"))["used_memory"]))
            await asyncio.sleep(0.05)
        used = min(readings)
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
        r"65,536 shards would take 19\d\.\d MB of memory for 4 fingerprints of seen URLs, and Redis has "
        r"(?:19|20)\.\d MB left; choose at most ([\d,]+), or give it more memory \(maxmemory\)",
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
    crowded.type("seed", *(f"https://d{number}.test/" for number in range(12_000)))
    limit_memory(crowded, MEGABYTE // 10)
    told = typed("reshard", "--shards", "512", *place)
    assert told.code == 75
    assert "OOM" in told.err
    assert "not completed: the crawl stands still until this is completed" in " ".join(told.err.split())
    limit_memory(crowded, 20 * MEGABYTE)
    assert "was undone" in crowded.type("reshard", "--cancel")


def test_commands_that_meet_a_reshard_say_how_to_go_on_in_full(hand: Hand, typed: Typed) -> None:
    place = ("--crawl", hand.crawl, "--redis", hand.url)

    async def begin(store: RedisStore, crawl: Crawl) -> None:
        await store.send([command("HSET", crawl.keys.meta, "resharding", 64, "reshard_may_switch", 1)])

    hand.with_store(begin)
    again, undo = (f"`crawler reshard {option} {' '.join(place)}`" for option in ("--shards 64", "--cancel"))
    for words in ("shards", "status", "run"):
        told = typed(words, *place)
        assert told.code == (0 if words == "status" else 75)
        said = " ".join((told.err + told.out).split())
        assert f"if that was interrupted, run {again} again, or undo it with {undo}" in said


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1.5", "--shards: '1.5' is not a whole number"),
        ("many", "--shards: 'many' is not a number; write it like 1000000, 1e6, 1M or 10k"),
        ("1,500", "1,500 shards: use a multiple of 1,024, such as 2,048, or a number that divides it, such as 512"),
        ("70k", "70,000 shards: use 1 to 65,536"),
        ("-64", "-64 shards: use 1 to 65,536"),
        ("1k", "1,000 shards: use a multiple of 1,024, such as 2,048, or a number that divides it, such as 512"),
    ],
)
def test_a_number_that_cannot_be_reached_is_answered_with_those_nearby(
    hand: Hand, typed: Typed, number: str, said: str
) -> None:
    told = typed("reshard", "--shards", number, "--crawl", hand.crawl, "--redis", hand.url)
    assert told.code == 2
    assert said in " ".join(told.err.split())
