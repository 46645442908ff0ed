"""Calls in parts: replies are in order, the next part is sent during processing, and an error is raised once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from frontier.errors import RedisAway
from frontier.scripts import Call, Reply, command
from frontier.store import RedisStore, send_in_parts


class Diary:
    """A store that records its calls, returns them as replies, and raises RedisAway for "lost"."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        word = str(calls[0].arguments[0])
        self.notes.append(f"asked {word}")
        await asyncio.sleep(0)
        if word == "lost":
            raise RedisAway(word)
        return [word]

    async def time_ms(self) -> float:
        return 0.0

    async def close(self) -> None:
        pass


async def test_the_replies_come_in_order(store: RedisStore, crawl_name: str) -> None:
    key = f"{{{crawl_name}}}:list"
    parts = [[command("RPUSH", f"{key}:{part}", call) for call in range(part)] for part in (3, 1, 2)]
    looked: list[list[Reply]] = []
    await send_in_parts(store.send, parts, looked.append)
    assert looked == [[1, 2, 3], [1], [1, 2]]
    await send_in_parts(store.send, [], looked.append)
    assert len(looked) == 3


async def test_the_next_part_is_asked_before_one_is_looked_at() -> None:
    diary = Diary()
    parts = [[command(word)] for word in ("a", "b", "c", "d")]
    await send_in_parts(diary.send, parts, lambda replies: diary.notes.append(f"looked at {replies[0]}"))
    assert diary.notes.index("asked b") < diary.notes.index("looked at a")
    assert diary.notes.index("asked c") > diary.notes.index("looked at a")  # and no more than that
    assert [note for note in diary.notes if note.startswith("looked")] == [f"looked at {word}" for word in "abcd"]


async def test_a_store_that_is_away_is_told_once_and_nothing_goes_on() -> None:
    diary = Diary()
    looked: list[Reply] = []
    with pytest.raises(RedisAway, match="lost"):
        await send_in_parts(diary.send, [[command(word)] for word in ("a", "lost", "lost", "d")], looked.extend)
    assert looked == ["a"]
    assert "asked d" not in diary.notes
    assert len(asyncio.all_tasks()) == 1


async def test_a_reader_that_fails_leaves_nothing_under_way() -> None:
    diary = Diary()

    def look(replies: list[Reply]) -> None:
        raise ValueError(replies)

    with pytest.raises(ValueError, match="a"):
        await send_in_parts(diary.send, [[command(word)] for word in ("a", "b", "c")], look)
    assert "asked c" not in diary.notes
    assert len(asyncio.all_tasks()) == 1
