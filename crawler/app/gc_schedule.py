"""Runs the garbage collector on a schedule, in small steps, while a process crawls.

By default the interpreter collects whenever allocations exceed deallocations by a threshold. The pause depends on the
number of live young objects. Because deallocations of old objects count against new allocations, there may be hundreds of
thousands of them: pauses of the event loop of 40 ms for the youngest generation and 120 ms for the next were measured.
Automatic collection is therefore disabled, and a task collects the youngest generation so often that it stays small.

Objects that exist when the crawl starts, such as classes and functions, are frozen and never scanned again. A crawl
creates few reference cycles (exceptions with their tracebacks), and hardly any survive to an older generation: fewer than
a hundred objects a second with 200 hostile domains. Frequent values that have only strings and numbers are created
untracked (`gc=False`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

YOUNG_S = 0.2
"""Seconds between collections of the youngest generation."""

MIDDLE_S = 1.0
"""Seconds between collections of the middle generation."""

ALL_S = 600.0
"""Seconds between full collections, which cannot be split. One takes 10 to 25 ms with 200 to 400 leased domains and 28 to
34 ms with 500, and grows with the state of the crawl."""


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
    loop = asyncio.get_running_loop()
    middle_at, all_at = loop.time() + MIDDLE_S, loop.time() + ALL_S
    while True:
        await asyncio.sleep(YOUNG_S)
        now = loop.time()
        if now >= all_at:
            gc.collect()
            all_at = now + ALL_S
        elif now >= middle_at:
            gc.collect(1)
            middle_at = now + MIDDLE_S
        else:
            gc.collect(0)
