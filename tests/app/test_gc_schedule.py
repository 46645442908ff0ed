"""The collection schedule: old and young cycles are collected, and only at the scheduled times."""

from __future__ import annotations

import asyncio
import gc
import weakref

from crawler.app.replica import paced_collection


class Node:
    """An object with a reference to itself."""

    def __init__(self) -> None:
        self.itself = self


async def test_cycles_are_collected_only_on_schedule() -> None:
    """Given a young garbage cycle, then it is kept while the event loop is busy, however many objects are created, and
    collected when the loop is idle."""
    gone = asyncio.Event()
    async with paced_collection():
        weakref.finalize(Node(), gone.set)
        kept = [[number] for number in range(50_000)]
        assert not gone.is_set()
        async with asyncio.timeout(60):
            await gone.wait()
        assert len(kept) == 50_000


async def test_older_garbage_is_collected() -> None:
    """Given an object that survived the youngest generation, when it becomes garbage, then the middle one is collected."""
    gone = asyncio.Event()
    async with paced_collection():
        node = Node()
        gc.collect(0)
        weakref.finalize(node, gone.set)
        del node
        async with asyncio.timeout(60):
            await gone.wait()


async def test_the_setting_of_the_interpreter_is_restored() -> None:
    async with paced_collection():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
