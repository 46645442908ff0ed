"""Pushes the links of results, so that each link of a settled page is in the frontier.

On a cluster, the nodes are asked side by side. A link whose own node is away goes to the outbox of the page's shard
(`frontier.outboxes`), so its page can be settled at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence

from crawler.events import LinksPushed
from crawler.scope.scope import RecentUrls
from crawler.worker.commit_group import Result
from crawler.worker.held_leases import HeldLeases
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.entries import Entry, PushMode
from frontier.errors import RedisAway
from frontier.queue import Frontier, PushReply

MANY_LINKS = 1_000
"""After a page with more links than this, the commit yields to the event loop."""

LinkKey = tuple[str, PushMode]
Links = dict[LinkKey, Entry]


class LinkPusher:
    """Pushes links that this replica has not pushed recently."""

    def __init__(self, runtime: Runtime, frontier: Frontier, recent: RecentUrls, held: HeldLeases) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._recent = recent
        self._held = held

    async def push(self, results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
        """Push the links of the results whose leases are still valid. Returns these results, and those of them whose links
        could not be pushed now, because nodes of a cluster are away. The others are dropped, since another replica may
        have crawled their URLs by now. A robots.txt is archived in any case."""
        if self._runtime.retry.has_many_nodes:
            valid, links, pushed, unsent = await self._push_each(results)
            unsafe = await self._keep(valid, unsent)
        else:
            valid, links, pushed = await self._runtime.retry.call(lambda: self._push_all(results))
            unsent, unsafe = Links(), set[LinkKey]()
        waiting = (
            [result for result in valid if result.links and not unsafe.isdisjoint(keys_of(result))] if unsafe else []
        )
        for number, (key, link) in enumerate(links.items(), 1):
            if key not in unsent:  # a link in an outbox is there for the pages of one shard only
                self._recent.add(link)
            if number % (10 * MANY_LINKS) == 0:
                await asyncio.sleep(0)
        self._held.pushed(pushed.shards)
        if offered := sum(len(result.links) for result in valid):
            skipped = offered - len(links)
            self._runtime.events.emit(LinksPushed(pushed.accepted, pushed.seen, pushed.capped, pushed.outside, skipped))
        return valid, waiting

    async def _new_links(self, results: Sequence[Result]) -> tuple[list[Result], Links]:
        """The results whose leases are still valid, and their links that were not pushed recently."""
        now, links = self._runtime.now(), Links()
        valid = [result for result in results if result.exchange is not None or result.leased.holds(now)]
        for result in valid:
            links.update([((link.url, link.mode), link) for link in result.links if link not in self._recent])
            if len(result.links) > MANY_LINKS:
                await asyncio.sleep(0)
        return valid, links

    async def _push_all(self, results: Sequence[Result]) -> tuple[list[Result], Links, PushReply]:
        valid, links = await self._new_links(results)
        return valid, links, await self._frontier.push(links.values()) if links else PushReply()

    async def _push_each(self, results: Sequence[Result]) -> tuple[list[Result], Links, PushReply, Links]:
        """Like `_push_all`, but node by node. Also returns the links whose nodes are away."""
        valid, links = await self._new_links(results)
        return valid, links, *await self._send(links)

    async def _send(self, links: Links) -> tuple[PushReply, Links]:
        """Push `links`. Returns the sum of the replies, and the links whose nodes are away."""
        retry, frontier = self._runtime.retry, self._frontier
        parts = retry.split(list(links.items()), lambda item: frontier.shard_of(item[1].domain))
        answers = await retry.each(parts, lambda part: frontier.push(link for _, link in part))
        unsent = Links()
        for node, answer in answers.items():
            if isinstance(answer, RedisAway):
                unsent.update(parts[node])
        return total(answer for answer in answers.values() if isinstance(answer, PushReply)), unsent

    async def keep(self, results: Sequence[Result], shards: Collection[int]) -> set[LeasedDomain]:
        """Put the links of `results` that belong to `shards` into outboxes, also those that were pushed before. Returns the
        domains of results of which a link is in neither place now."""
        links = Links()
        for result in results:
            links.update(
                ((link.url, link.mode), link) for link in result.links if self._frontier.shard_of(link.domain) in shards
            )
        unsafe = await self._keep(results, links)
        return {result.leased for result in results if unsafe and not unsafe.isdisjoint(keys_of(result))}

    async def _keep(self, results: Sequence[Result], unsent: Links) -> set[LinkKey]:
        """Put links into the outboxes of the shards of `results`. Returns those that are not in each of them."""
        if not unsent:
            return set()
        retry, frontier = self._runtime.retry, self._frontier
        kept: dict[int, dict[LinkKey, tuple[int, Entry]]] = {}
        for result in results:
            for link in result.links:
                key = link.url, link.mode
                if key in unsent:
                    kept.setdefault(result.shard, {})[key] = frontier.shard_of(link.domain), link
        parts = retry.split(list(kept), lambda shard: shard)
        answers = await retry.each(
            parts, lambda shards: frontier.keep_links({shard: list(kept[shard].values()) for shard in shards})
        )
        unsafe: set[LinkKey] = set()
        for node, answer in answers.items():
            for shard in parts[node] if isinstance(answer, RedisAway) else answer:
                unsafe.update(kept[shard])
        return unsafe


def keys_of(result: Result) -> Iterable[LinkKey]:
    """How the links of `result` are told apart."""
    return ((link.url, link.mode) for link in result.links)


def total(pushed: Iterable[PushReply]) -> PushReply:
    """The sum of the replies."""
    replies = list(pushed)
    return PushReply(
        accepted=sum(reply.accepted for reply in replies),
        seen=sum(reply.seen for reply in replies),
        capped=sum(reply.capped for reply in replies),
        outside=sum(reply.outside for reply in replies),
        shards=frozenset().union(*(reply.shards for reply in replies)),
    )
