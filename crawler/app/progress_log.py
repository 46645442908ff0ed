"""Logs the progress of a crawl at intervals: of `crawler crawl` without a live display, and of `crawler run` in a terminal.
Elsewhere, each replica logs its own."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from crawler.logs import log
from crawler.observe.condition import NOTHING_LEFT, failing, waiting
from crawler.observe.snapshot import Status, status
from crawler.wording import with_place
from frontier.crawls import open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore

LOOK_S = 1.0
"""Seconds between two looks for failures that keep the whole crawl waiting. A new one is logged at once."""


@contextlib.asynccontextmanager
async def progress_logged(store: RedisStore, crawl: str, every_s: float) -> AsyncIterator[None]:
    """Log the progress of `crawl` every `every_s` seconds inside the block; 0: never. A failure that keeps the whole crawl
    waiting is logged when it is first seen."""
    task = asyncio.create_task(_repeat(store, crawl, every_s)) if every_s else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


async def _repeat(store: RedisStore, crawl: str, every_s: float) -> None:
    told: set[tuple[str, str]] = set()
    due_s = every_s
    while True:
        step_s = min(LOOK_S, due_s)
        await asyncio.sleep(step_s)
        due_s -= step_s
        with contextlib.suppress(FrontierError):  # the replicas log that Redis is away
            found = await status(store, await open_crawl(store, crawl, for_reshard=True), exact=False)
            failed = {(line.domain, line.robots or line.reason): line for line in found.hindered}
            if due_s <= 0 or failed.keys() - told:
                _tell(found)
                due_s = every_s
            told |= failed.keys()


def _tell(found: Status) -> None:
    reasons = [*failing(found), *waiting(found.replicas)]
    if NOTHING_LEFT in found.condition.obstacles:
        reasons = [NOTHING_LEFT]
    if found.condition.word == "resharding":
        reasons = found.condition.obstacles[:1]  # without what to do if its command was killed
    waits = {"waits_for": "; ".join(with_place(reasons, f"--crawl {found.crawl}"))} if reasons else {}
    log(
        logging.INFO,
        "progress",
        crawl=found.crawl,
        pages=found.done,
        pages_per_s=round(sum(record.pages_per_s for record in found.replicas), 1),
        known=found.accepted,
        left=found.open,
        denied=found.denied,
        dead=found.dead,
        replicas=len(found.replicas),
        **waits,
    )
