"""The collector of a process that crawls: cycles go, old and young, and nothing is collected at other moments."""

from __future__ import annotations

import asyncio
import gc
import weakref

from crawler.app.gc_schedule import paced_collection


class Node:
    """Something that holds itself."""

    def __init__(self) -> None:
        self.itself = self


async def test_garbage_in_cycles_is_collected_and_not_while_others_work() -> None:
    """Given a young cycle of garbage, then it stays for as long as the event loop is busy, whatever is made meanwhile, and
    goes when the loop is not."""
    gone = asyncio.Event()
    async with paced_collection():
        weakref.finalize(Node(), gone.set)
        kept = [[number] for number in range(50_000)]
        assert not gone.is_set()
        async with asyncio.timeout(5):
            await gone.wait()
        assert len(kept) == 50_000


async def test_what_became_garbage_later_is_collected_too() -> None:
    """Given an object that outlived the youngest generation, when it becomes garbage, then the middle one's turn comes."""
    gone = asyncio.Event()
    async with paced_collection():
        node = Node()
        gc.collect(0)
        weakref.finalize(node, gone.set)
        del node
        async with asyncio.timeout(5):
            await gone.wait()


async def test_the_interpreter_is_left_as_it_was() -> None:
    async with paced_collection():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
