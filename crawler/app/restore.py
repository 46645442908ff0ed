"""Restores what Redis has lost from the lines of pages: which URLs were settled, and their links.

`crawler repair` restores lost shards. A replica does it for shards that came back in an old state, as from a snapshot:
otherwise all that was fetched since would be fetched again, and the page limit would not hold. Replicas that have ended
cannot notice that, so the first one that starts in their folder does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TypeVar

import msgspec

from crawler.errors import UserError
from crawler.logs import log
from crawler.page import KEPT_DENIALS, LinkKind, Outcome
from crawler.parse.html import ExtractPolicy
from crawler.scope.scope import LinkFilter
from crawler.sinks.files import is_open
from crawler.sinks.lines import Place, VisitLine, decoded_lines, is_of_another, line_files
from crawler.sinks.reader import BrokenFraming, requisites_at
from frontier.clock import ServerClock
from frontier.crawls import Crawl
from frontier.entries import Entry
from frontier.errors import BadUrl, RedisAway, RedisMisused
from frontier.repair import Ended, Repair
from frontier.scripts import command
from frontier.settle import KEEP
from frontier.store import Store, ask, count_in
from frontier.urls import stored_url

PAGES_AT_ONCE = 200
"""Pages whose lines are taken in one step. With their links, this is about one second's work of a replica."""

GROUP_MS = 1_000
"""How much earlier than the last settlement that a node knows one may be that it has lost: groups of several replicas, and
of several shards, are committed side by side."""

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


def page_lines(folders: Sequence[Path], crawl: str, since_s: float = 0.0, finished: bool = False) -> Iterator[PageLine]:
    """The lines of `crawl` in files written to after `since_s` (since 1970); `finished`: not in open ones. Raises UserError
    for one that is malformed."""
    for path in (path for folder in folders for path in line_files(folder)):
        if (finished and is_open(path)) or (since_s and path.stat().st_mtime < since_s):
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


def ended(line: PageLine) -> Ended:
    """How the URL of a line was settled. Of several lines of a URL, that of its page counts: restore those first."""
    is_kept = line.outcome == Outcome.DENIED and line.reason in KEPT_DENIALS
    return Ended(line.entry, line.outcome, line.reason, KEEP if is_kept else "")


@dataclass(frozen=True, slots=True)
class OldState:
    """Restores shards that came back in an old state, from the lines in `folders`. `links`, `policy`: as pages were
    handled."""

    store: Store
    crawl: Crawl
    clock: ServerClock
    folders: Sequence[Path]
    links: LinkFilter
    policy: ExtractPolicy
    domain_cap: int

    async def restore_ended(self) -> int:
        """Restore what replicas that have ended had settled later than all that Redis knows. No replica may run. Returns
        the number of URLs. Raises RedisAway and UserError. It is not noticed if only pages of the group that was just
        being settled are missing: their lines have times from before, as have URLs that were queued again on purpose."""
        await self.clock.refresh()
        keys, now_ms = self.crawl.keys, self.clock.now_ms()
        times = [command("HGET", of.stats, "last_ms") for of in keys.shards]
        created, *last = await ask(self.store, [command("HGET", keys.meta, "created_ms"), *times])
        created_ms, last_ms = count_in(created), list(map(count_in, last))
        nodes = [self.store.node_of(of.stats) for of in keys.shards]
        latest_ms: dict[str, int] = {}  # by node, because only some may have lost writes
        for node, at_ms in zip(nodes, last_ms, strict=True):
            latest_ms[node] = max(latest_ms.get(node, 0), at_ms)
        # A shard that a reshard has made does not know of settlements before.
        unknown = {shard for shard, at_ms in enumerate(last_ms) if not at_ms} if keys.last_tokens else set()
        first_ms = max(created_ms, min(latest_ms.values()) - GROUP_MS)

        def lost() -> dict[int, int]:
            old_nodes = set[str]()
            for line in page_lines(self.folders, self.crawl.name, first_ms / 1000, finished=True):
                shard = keys.shard_of(line.domain)
                # What was settled before the crawl was created is of another crawl of the same name.
                known_ms = max(created_ms, last_ms[shard], latest_ms[nodes[shard]] - GROUP_MS)
                if 0 < known_ms < int(_settled_ms(line)) <= now_ms and shard not in unknown:
                    old_nodes.add(nodes[shard])
            known = {shard: latest_ms[node] for shard, node in enumerate(nodes) if node in old_nodes}
            return {shard: at_ms for shard, at_ms in known.items() if shard not in unknown}

        shards = await asyncio.to_thread(lost)
        return await self.restore(shards) if shards else 0

    async def restore(self, lost: Mapping[int, int], replica: str = "") -> int:
        """Restore what was settled since, and return the number of URLs. `lost`: shard -> the time of the last lease that
        it knows (server ms, 0 for none); `replica`: this one, which restores what it has settled itself: others that run
        may find that their pages are not settled, and remove them. "": what replicas have settled that have ended."""
        since_ms = min(lost.values()) - GROUP_MS  # a line has a time from shortly before its settlement
        repair = Repair(self.store, self.crawl, self.clock, self.domain_cap, lost)

        def lines() -> Iterator[PageLine]:
            for line in page_lines(self.folders, self.crawl.name, since_ms / 1000, finished=not replica):
                has_links = line.links is not None or not line.link_count  # otherwise it has to be fetched again
                lost_ms = lost.get(repair.shard_of(line.domain), 0) - GROUP_MS
                is_ours = not replica or line.replica == replica
                if is_ours and has_links and _settled_ms(line) >= max(since_ms, lost_ms):
                    yield line

        def pages(is_done: bool) -> Iterator[PageLine]:
            for line in lines():
                if repair.concerns(line.domain) and (line.outcome == Outcome.DONE) is is_done:
                    yield line

        quiet = asyncio.create_task(self._keep_quiet(repair))
        restored = 0
        try:
            read_created = command("HGET", self.crawl.keys.meta, "created_ms")
            (created,) = await _while_away(partial(ask, self.store, [read_created]))
            since_ms = max(count_in(created), since_ms)
            # First as they were found, because links to them may come to the same URLs on other ways.
            async for batch in _batches(chain(pages(True), pages(False))):
                entries = [line.entry for line in batch]
                await _while_away(partial(repair.push, entries))
            async for batch in _batches(chain(pages(True), pages(False))):
                for line in batch:
                    found = await self._found_on(line)
                    await _while_away(partial(repair.push, found, everywhere=True))
                number = await _while_away(partial(repair.restore, list(map(ended, batch))))
                # Rather too many pages, which a recount corrects, than more than the limit (`frontier.budget`).
                used = command("HINCRBY", self.crawl.keys.budget, "used", number)
                await _while_away(partial(self.store.send, [used]))
                restored += number
            # The pages with the links may be in shards that have lost nothing.
            async for batch in _batches(line for line in lines() if not repair.concerns(line.domain)):
                found = []
                for line in batch:
                    found += [entry for entry in await self._found_on(line) if repair.concerns(entry.domain)]
                await _while_away(partial(repair.push, found))
        except (UserError, OSError, RedisAway, RedisMisused) as error:  # what is missing is fetched again
            log(logging.WARNING, "not_restored", error=error)
        finally:
            quiet.cancel()
        lost_s = round((self.clock.now_ms() - since_ms) / 1000, 1)
        if restored or replica:
            log(logging.WARNING, "redis_state_is_old", lost_s=lost_s, shards=len(lost), restored_urls=restored)
        return restored

    async def _found_on(self, line: PageLine) -> list[Entry]:
        await asyncio.sleep(0)  # the replica goes on meanwhile, and a page may have thousands of links
        return found_on(line, self.folders, self.links, self.policy)

    async def _keep_quiet(self, repair: Repair) -> None:
        while True:
            with contextlib.suppress(RedisAway):
                await repair.keep_quiet()
            await asyncio.sleep(QUIET_S)


async def _batches(pages: Iterator[PageLine]) -> AsyncIterator[list[PageLine]]:
    """`pages` in batches, read in a thread, because there may be any number of other lines between them."""
    while batch := await asyncio.to_thread(list, islice(pages, PAGES_AT_ONCE)):
        yield batch


async def _while_away(call: Callable[[], Awaitable[T]]) -> T:
    """The result of `call`, which is repeated while Redis is away. Raises RedisAway if it stays away."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(RedisAway):
            return await call()
        await asyncio.sleep(AGAIN_S)
    return await call()


def _settled_ms(line: PageLine) -> float:
    return 1000 * datetime.fromisoformat(line.settled_at).timestamp() if line.settled_at else 0.0
