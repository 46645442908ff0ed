"""Restores what Redis has lost from the lines of pages: which URLs were settled, and their links.

`crawler repair` restores lost shards. A replica does it for shards that came back in an old state, as from a snapshot:
otherwise all that was fetched since would be fetched again, and the page limit would not hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec

from crawler.errors import UserError
from crawler.logs import log
from crawler.page import LinkKind, Outcome
from crawler.parse.html import ExtractPolicy
from crawler.scope.scope import LinkFilter
from crawler.sinks.lines import Place, VisitLine, decoded_lines, is_of_another, line_files
from crawler.sinks.reader import BrokenFraming, requisites_at
from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.entries import Entry
from frontier.errors import BadUrl, RedisAway, RedisMisused
from frontier.repair import Ended, Repair
from frontier.store import Store, batched
from frontier.urls import stored_url

PAGES_AT_ONCE = 200
"""Pages whose lines are taken in one step. With their links, this is about one second's work of a replica."""

QUIET_S = 0.4
"""How often shards are told to grant no leases: each time for a second."""


AGAIN_S, ATTEMPTS = 0.5, 20
"""How often a call is repeated while Redis is away, and its attempts: a lost connection must not end a restore, but on a
cluster, a node that stays away must not hold up the others."""

T = TypeVar("T")


class PageLine(VisitLine, kw_only=True):
    """The fields of a page line that a repair needs."""

    outcome: str
    reason: str
    status: int | None = None
    link_count: int = 0
    links: list[str] | None = None
    replica: str | None = None
    followed: dict[str, list[str]] | None = None
    items: dict[str, list[msgspec.Raw]] | None = None
    warc: Place | None = None


_decoder = msgspec.json.Decoder(PageLine)


def page_lines(folders: Sequence[Path], crawl: str, since_s: float = 0.0) -> Iterator[PageLine]:
    """The lines of `crawl` in files written to after `since_s` (since 1970). Raises UserError for one that is
    malformed."""
    for path in (path for folder in folders for path in line_files(folder)):
        if since_s and path.stat().st_mtime < since_s:
            continue
        for line in decoded_lines(path, _decoder):
            if not is_of_another(path, str(line.replica), crawl):
                yield line


def found_on(line: PageLine, folders: Sequence[Path], links: LinkFilter, policy: ExtractPolicy) -> list[Entry]:
    """The links of a page as entries, and what it embeds, if its record is in one of `folders`. How pages were linked is
    not archived, except for redirects."""
    kind = LinkKind.REDIRECT if line.status is not None and 300 <= line.status < 400 else LinkKind.ANCHOR
    tags = {href: tag for tag, hrefs in (line.followed or {}).items() for href in hrefs}
    urls = []
    for href in (line.links or ()) if line.followed is None else tags:
        with contextlib.suppress(BadUrl):  # the rules have changed since
            urls.append((stored_url(href, policy.rules), kind))
    entries = links.select(urls, line.entry)[0]
    entries = [msgspec.structs.replace(entry, tag=tags.get(entry.url, entry.tag)) for entry in entries]
    if policy.requisites and line.outcome == Outcome.DONE and (place := line.warc) is not None:
        for folder in folders:
            with contextlib.suppress(OSError, BrokenFraming):
                embedded = requisites_at(folder / place.file, place.offset, line.url, policy)
                return entries + links.requisites(embedded, line.entry)[0]
    return entries


class OldState:
    """Restores shards that came back in an old state, from the lines in `out`. `links`, `policy`: as pages were handled."""

    def __init__(
        self,
        store: Store,
        crawl: Crawl,
        clock: ServerClock,
        out: Path,
        links: LinkFilter,
        policy: ExtractPolicy,
        domain_cap: int,
    ) -> None:
        self._store = store
        self._crawl = crawl
        self._clock = clock
        self._out = out
        self._links = links
        self._policy = policy
        self._domain_cap = domain_cap

    async def restore(self, lost: Mapping[int, int]) -> None:
        """Restore what was settled since. `lost`: shard -> the time of the last lease that it knows (server ms)."""
        since_ms = min(lost.values())
        repair = Repair(self._store, self._crawl, self._clock, self._domain_cap, lost)

        def pages() -> Iterator[PageLine]:
            for line in page_lines([self._out], self._crawl.name, since_ms / 1000):
                has_links = line.links is not None or not line.link_count  # otherwise it has to be fetched again
                lost_since_ms = lost.get(repair.shard_of(line.domain))
                if has_links and lost_since_ms is not None and _settled_ms(line) >= lost_since_ms:
                    yield line

        quiet = asyncio.create_task(self._keep_quiet(repair))
        restored = 0
        try:
            # First as they were found, because links to them may come to the same URLs on other ways.
            for batch in batched(pages(), PAGES_AT_ONCE):
                entries = [line.entry for line in batch]
                await _while_away(partial(repair.push, entries))
            for batch in batched(pages(), PAGES_AT_ONCE):
                for line in batch:
                    found = found_on(line, [self._out], self._links, self._policy)
                    await _while_away(partial(repair.push, found, everywhere=True))
                ended = [Ended(line.entry, line.outcome, line.reason) for line in batch]
                restored += await _while_away(partial(repair.restore, ended))
        except (UserError, OSError, RedisAway, RedisMisused) as error:  # what is missing is fetched again
            log(logging.WARNING, "not_restored", error=error)
        finally:
            quiet.cancel()
        lost_s = round((self._clock.now_ms() - since_ms) / 1000, 1)
        log(logging.WARNING, "redis_state_is_old", lost_s=lost_s, shards=len(lost), restored_urls=restored)

    async def _keep_quiet(self, repair: Repair) -> None:
        while True:
            with contextlib.suppress(RedisAway):
                await repair.keep_quiet()
            await asyncio.sleep(QUIET_S)


async def _while_away(call: Callable[[], Awaitable[T]]) -> T:
    """The result of `call`, which is repeated while Redis is away. Raises RedisAway if it stays away."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(RedisAway):
            return await call()
        await asyncio.sleep(AGAIN_S)
    return await call()


def _settled_ms(line: PageLine) -> float:
    return 1000 * datetime.fromisoformat(line.settled_at).timestamp() if line.settled_at else 0.0
