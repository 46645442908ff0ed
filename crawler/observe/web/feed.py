"""The data of the live page, read from Redis once a second while at least one page is open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from crawler.observe.status import CrawlReader, LastRead, Snapshot, with_age
from frontier.clock import Clock
from frontier.keys import CrawlKeys
from frontier.store import RedisStore

REFRESH_S = 1.0

LISTED_RULES = 50
"""The most rules for domains that are sent to a page each second."""


class Live:
    """Provides snapshots, as JSON, to all open pages. Reads Redis only while a page is open."""

    def __init__(self, store: RedisStore, keys: CrawlKeys, served_by: str, clock: Clock) -> None:
        self._crawl = keys.crawl
        self._served_by = served_by
        self._clock = clock
        self._source = CrawlReader(store, keys, served_by)
        self._last: LastRead[Snapshot] = LastRead(clock)
        self._news = asyncio.Condition()
        self._text = b""
        self._number = 0
        self._reader: asyncio.Task[Any] | None = None
        self._closed = False
        self.watchers = 0  # open pages

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count an open page for the duration of this block."""
        self.watchers += 1
        try:
            yield
        finally:
            self.watchers -= 1

    async def snapshot(self) -> Snapshot:
        """Return the current snapshot. If Redis cannot be read, it is the last one, and its `error` says why."""
        await self._last.update(self._source.read())
        snapshot = with_age(self._last, self._crawl, self._served_by)
        rules, more = snapshot.rules[:LISTED_RULES], len(snapshot.rules) - LISTED_RULES
        return msgspec.structs.replace(snapshot, rules=rules, more_rules=max(0, more))

    async def next(self, after: int) -> tuple[int, bytes] | None:
        """Wait for a snapshot with a number above `after`, and return its number and JSON; None when the replica stops."""
        if self._reader is None:
            self._reader = asyncio.create_task(self._read())
        async with self._news:
            await self._news.wait_for(lambda: self._number > after or self._closed)
            return None if self._closed else (self._number, self._text)

    async def _read(self) -> None:
        try:
            while self.watchers and not self._closed:
                text = msgspec.json.encode(await self.snapshot())
                async with self._news:
                    self._text, self._number = text, self._number + 1
                    self._news.notify_all()
                await self._clock.sleep(REFRESH_S)
        finally:
            self._reader = None

    async def close(self) -> None:
        """End all `next` calls and stop reading."""
        self._closed = True
        async with self._news:
            self._news.notify_all()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
