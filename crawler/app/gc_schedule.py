"""Runs the garbage collector on a schedule, in small steps, while a process crawls.

By default the interpreter collects whenever allocations exceed deallocations by a threshold. The pause depends on the
number of live young objects. Because deallocations of old objects count against new allocations, there may be hundreds of
thousands of them, and the event loop pauses for tens of milliseconds. Automatic collection is therefore disabled, and a
task collects the two young generations so often that they stay small. Both at once: an object that lives on is then
visited a single time. Collecting the youngest alone takes more than twice the time, mostly for objects in use.

Objects that exist when the crawl starts, such as classes and functions, are frozen and never scanned again. A crawl
creates few reference cycles (exceptions with their tracebacks), and hardly any survive to an older generation. Frequent
values that have only strings and numbers are created untracked (`gc=False`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator

YOUNG_S = 0.5
"""Seconds between collections of the young generations."""

ALL_STEPS = 1_200
"""These collections per full one (ten minutes). A full collection cannot be split, and takes longer the larger the state
of the crawl is."""


@contextlib.asynccontextmanager
async def paced_collection() -> AsyncIterator[None]:
    """Collect garbage on the schedule above within the context, and restore the interpreter's setting afterwards."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    collecting = asyncio.create_task(_collect())
    try:
        yield
    finally:
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
        gc.unfreeze()  # otherwise C libraries report leaks when the interpreter exits
        if was_enabled:
            gc.enable()


async def _collect() -> None:
    for step in itertools.count(1):
        await asyncio.sleep(YOUNG_S)
        gc.collect(2 if step % ALL_STEPS == 0 else 1)
