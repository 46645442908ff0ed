"""The garbage collector of a process that crawls: little by little, and at moments of our choosing.

Left to itself the interpreter looks for garbage in cycles when so many more objects were made than went, wherever that
happens to be. How long it then takes depends on how many of the young objects live, and as each old one that goes makes
room for one more, that may be hundreds of thousands: 40 ms of the event loop for the youngest generation, 120 ms for the
next. So it is switched off, and a task asks for the collections: the youngest generation so often that little is in it.

What is there when the crawl begins, the program's own classes and functions, stays to the end and is never looked at again.
Of what a crawl makes, little ends in cycles (exceptions with their tracebacks), and hardly any of that is old: less than a
hundred objects a second beside 200 hostile domains. Values that there are many of, and that hold nothing but texts and
numbers, are made so that the collector does not know of them (`gc=False`).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator

YOUNG_S = 0.2
"""Between two collections of the youngest generation."""

MIDDLE_S = 1.0
"""Between two collections of the next one."""

ALL_S = 600.0
"""Between two collections of everything, which cannot be done in parts: 10 to 25 ms with 200 to 400 domains under lease,
28 to 34 with 500, and the more the larger a crawl's state is."""


@contextlib.asynccontextmanager
async def paced_collection() -> AsyncIterator[None]:
    """Within it garbage is collected in small portions."""
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
        gc.unfreeze()  # or the interpreter's end leaves it, and libraries in C complain of leaks
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
