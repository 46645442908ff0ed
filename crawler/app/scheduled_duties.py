"""Carries out `[[schedule]]`: in each interval, one replica reads a seed file or queues a sitemap again. `frontier.peers`
says which replica.

A replica reads the seed file from its own file system, so the file has to be on all machines or in a shared folder. A
replica that cannot read it logs a warning and leaves the duty to another one. A sitemap is queued, and the replica that
owns its domain fetches it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from crawler.logs import log
from crawler.scope.seeds import read_seeds
from crawler.worker.runtime import Runtime
from frontier.entries import Entry
from frontier.peers import Duties
from frontier.queue import PushReply
from frontier.urls import UrlRules, canonicalize

LOOK_S = 1.0
"""Seconds between checks for due duties. A check costs nothing while the duty of the interval is known to be done."""

CHUNK = 1_000
"""URLs that are pushed before the claim is renewed. Pushing them takes a fraction of a second; a claim lasts 30 s."""


class PeriodicDuty(msgspec.Struct, frozen=True):
    """Every `every_s` seconds, push the new URLs of the file `seeds`, or queue `sitemap` again. Exactly one is given."""

    every_s: float
    seeds: str = ""
    sitemap: str = ""

    @property
    def name(self) -> str:
        return self.seeds or self.sitemap


class PeriodicDuties:
    """Carries out the duties of a crawl that this replica can claim."""

    def __init__(
        self,
        runtime: Runtime,
        duties: Duties,
        schedule: Sequence[PeriodicDuty],
        push: Callable[[Sequence[Entry]], Awaitable[PushReply]],
        rules: UrlRules,
    ) -> None:
        self._runtime = runtime
        self._duties = duties
        self._schedule = schedule
        self._push = push
        self._rules = rules
        self._over: dict[str, int] = {}  # duty -> the last interval that this replica has finished with

    async def run(self) -> None:
        """Check and carry out duties until cancelled."""
        while True:
            for duty in self._schedule:
                await self.run_if_due(duty)
            await self._runtime.clock.sleep(LOOK_S)

    async def run_if_due(self, duty: PeriodicDuty) -> bool:
        """Carry out `duty` if it is due and this replica can claim it. Returns whether it was done here."""
        interval = self._duties.interval_of(duty.every_s)
        if self._over.get(duty.name) == interval:
            return False
        if not await self._runtime.retry.call(lambda: self._duties.claim(duty.name, interval)):
            return False
        entries = await self._entries(duty)
        if entries is None:
            self._over[duty.name] = interval  # the claim expires, and another replica may have the file
            return False
        accepted = 0
        for at in range(0, max(1, len(entries)), CHUNK):
            chunk = entries[at : at + CHUNK]
            accepted += (await self._runtime.retry.call(lambda chunk=chunk: self._push(chunk))).accepted  # type: ignore[misc]
            await self._runtime.retry.call(lambda: self._duties.claim(duty.name, interval))
        self._over[duty.name] = interval
        done = await self._runtime.retry.call(lambda: self._duties.report_done(duty.name, interval))
        log(logging.INFO, "duty_done", duty=duty.name, interval=interval, accepted=accepted)
        return done

    async def _entries(self, duty: PeriodicDuty) -> list[Entry] | None:
        """Return the entries that `duty` pushes, or None if its file cannot be read here."""
        if duty.sitemap:
            url = canonicalize(duty.sitemap, None, self._rules)
            return [Entry(url.href, url.domain, mode="again")]
        try:
            lines = await asyncio.to_thread(_read, Path(duty.seeds))
        except OSError as error:
            log(logging.WARNING, "duty_impossible", duty=duty.name, error=error.strerror)
            return None
        seeds, errors = read_seeds(lines, self._rules)
        for broken in errors[:10]:
            log(logging.WARNING, "seed_broken", file=duty.seeds, line=broken.line, reason=broken.reason)
        return [Entry(seed.url.href, seed.url.domain, seed.priority or 0.0) for seed in seeds]


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
