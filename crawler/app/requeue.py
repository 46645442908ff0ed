"""Queues dead letters and kept denied URLs again: `crawler dead requeue`. What is stored of their failures is reset, so
that they are tried."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from frontier.crawls import Crawl, crawl_clock
from frontier.dead_letters import DeadLetter, DeadLetters
from frontier.queue import Frontier, FrontierSettings
from frontier.store import RedisStore
from frontier.urls import origin_of
from politeness.robots_cache import RobotsCache

AT_ONCE = 5_000
"""Dead letters that are read before they are queued again."""


async def list_letters(
    store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None, limit: int
) -> tuple[list[DeadLetter], int]:
    """Return at most `limit` dead letters, those of `domain` and with `reason` if these are given, and the number of shards
    that cannot be read, because their nodes are away. Raises RedisAway if no shard can be read."""
    letters = DeadLetters(store, crawl.keys)
    return await _first(letters.find(domain, reason, skips_away=True), limit), letters.unread


async def _first(letters: AsyncIterator[DeadLetter], limit: int) -> list[DeadLetter]:
    found = []
    async for letter in letters:
        found.append(letter)
        if len(found) >= limit:
            break
    return found


async def requeue(store: RedisStore, crawl: Crawl, domain: str | None, reason: str | None) -> int:
    """Queue all dead letters again, or those of `domain` and with `reason`. Returns their number. Raises RedisAway.

    A robots.txt that was unreachable is asked again first. Otherwise its count of failures, which is stored, would end
    these URLs as dead at once.
    """
    number = 0
    letters = DeadLetters(store, crawl.keys)
    while found := await _first(letters.find(domain, reason), AT_ONCE):
        number += await _requeue(store, crawl, found)
        if len(found) < AT_ONCE:
            break  # URLs that are given up again in the meantime are left alone
    return number


async def requeue_urls(store: RedisStore, crawl: Crawl, urls: Collection[str]) -> set[str]:
    """Queue the dead letters of `urls` again. Returns the URLs that had one. Raises RedisAway."""
    found = [letter async for letter in DeadLetters(store, crawl.keys).find() if letter.url in urls]
    for at in range(0, len(found), AT_ONCE):
        await _requeue(store, crawl, found[at : at + AT_ONCE])
    return {letter.url for letter in found}


async def _requeue(store: RedisStore, crawl: Crawl, found: Sequence[DeadLetter]) -> int:
    clock = await crawl_clock(store, crawl)
    frontier = Frontier(store, crawl.keys, clock, FrontierSettings(), crawl.fingerprint_key)
    origins = {origin_of(letter.url): letter.domain for letter in found}
    await RobotsCache(store, frontier, "").forget_failures(origins, clock.now_ms())
    return await DeadLetters(store, crawl.keys).requeue(found, clock.now_ms())
