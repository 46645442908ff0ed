"""Logs the progress of `crawler crawl` at intervals, where no live display shows it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

from crawler.logs import log
from crawler.observe.snapshot import status
from frontier.crawls import open_crawl
from frontier.errors import FrontierError
from frontier.store import RedisStore


@contextlib.asynccontextmanager
async def progress_logged(store: RedisStore, crawl: str, every_s: float) -> AsyncIterator[None]:
    """Log the progress of `crawl` every `every_s` seconds inside the block; 0: never."""
    task = asyncio.create_task(_repeat(store, crawl, every_s)) if every_s else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


async def _repeat(store: RedisStore, crawl: str, every_s: float) -> None:
    while True:
        await asyncio.sleep(every_s)
        with contextlib.suppress(FrontierError):  # the replicas log that Redis is away
            found = await status(store, await open_crawl(store, crawl), exact=False)
            log(
                logging.INFO,
                "progress",
                crawl=crawl,
                pages=found.done,
                pages_per_s=round(sum(record.pages_per_s for record in found.replicas), 1),
                known=found.accepted,
                left=found.open,
                denied=found.denied,
                dead=found.dead,
                replicas=len(found.replicas),
            )
