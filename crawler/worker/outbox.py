"""Delivers the links in the outboxes of the owned shards, when the nodes where they belong are back.

`frontier.outboxes` says why they are there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from crawler.events import LinksPushed
from crawler.worker.commit import total
from crawler.worker.leases import HeldLeases
from crawler.worker.runtime import Runtime
from frontier.outboxes import KeptLink
from frontier.queue import Frontier, PushReply

POLL_S, IDLE_POLL_S = 1.0, 30.0
"""How often the outboxes are looked at: while there may be links, and otherwise. A look costs a call for each shard."""

WATCHED_S = 10.0
"""How long there may be links after nothing points to any: others may put some into shards that were taken over."""

SHARDS_A_ROUND, LINKS_A_SHARD = 16, 200
"""How much is read in one round: a few hundred kilobytes. While nothing can be delivered, there is a round every
`POLL_S`; otherwise the next one follows at once."""


class OutboxDelivery:
    """Pushes kept links, and then removes them from the outboxes of the shards in `held`."""

    def __init__(self, runtime: Runtime, frontier: Frontier, held: HeldLeases) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._held = held
        self._starts: dict[int, int] = {}  # shard -> the target from which its outbox is read next
        self._turn = 0  # the last shard of the last round
        self._shards: frozenset[int] = frozenset()  # owned at the last look
        self._watched_until = self._idle_until = float("-inf")

    def __repr__(self) -> str:
        return f"<OutboxDelivery of={sorted(self._starts)}>"

    async def run(self) -> None:
        """Deliver links until cancelled."""
        while True:
            delivered = await self._round() if self._is_due() else 0
            if not delivered:
                await self._runtime.clock.sleep(POLL_S)

    def _is_due(self) -> bool:
        now, retry = self._runtime.now(), self._runtime.retry
        signs = (self._starts, self._frontier.outboxes.take_use(), retry.away_nodes, retry.incomplete_nodes)
        if retry.has_many_nodes and (any(signs) or self._held.shards != self._shards):
            self._watched_until = now + WATCHED_S
        if now >= self._watched_until and now < self._idle_until:
            return False
        self._shards, self._idle_until = self._held.shards, now + IDLE_POLL_S
        return True

    async def _round(self) -> int:
        retry = self._runtime.retry
        shards = await self._next_shards()
        outboxes = await self._read(shards)
        links = [link for kept in outboxes.values() for link in kept if not retry.is_shard_away(link.target)]
        sent = await self._push(links)
        await self._remove(sent)
        gone = set(sent)
        for shard, kept in outboxes.items():
            self._advance(shard, kept, gone)
        return len(sent)

    async def _next_shards(self) -> list[int]:
        """Some of the owned shards whose outboxes are not empty, in turn."""
        owned, outboxes = sorted(self._held.shards), self._frontier.outboxes
        answered, _ = await self._runtime.retry.each_node(owned, lambda shard: shard, outboxes.filled)
        filled = sorted(shard for _, shards in answered for shard in shards)
        self._starts = {shard: self._starts.get(shard, 0) for shard in filled}
        later = [shard for shard in filled if shard > self._turn]
        shards = [*later, *filled[: len(filled) - len(later)]][:SHARDS_A_ROUND]
        self._turn = shards[-1] if shards else 0
        return shards

    async def _read(self, shards: Sequence[int]) -> dict[int, list[KeptLink]]:
        outboxes = self._frontier.outboxes
        answered, _ = await self._runtime.retry.each_node(
            shards,
            lambda shard: shard,
            lambda part: outboxes.read({shard: self._starts[shard] for shard in part}, LINKS_A_SHARD),
        )
        return {shard: links for part, read in answered for shard, links in zip(part, read, strict=True)}

    async def _push(self, links: Sequence[KeptLink]) -> list[KeptLink]:
        """Push `links`. Returns those that may be removed. Links whose server was replaced stay: it may have lost them,
        and this replica may die before it pushes its last writes again."""
        frontier = self._frontier
        answered, _ = await self._runtime.retry.each_node(
            links, lambda link: link.target, lambda part: frontier.push(link.entry for link in part)
        )
        pushed = total(reply for _, reply in answered)
        self._held.pushed(pushed.shards)
        if pushed != PushReply():
            counts = (pushed.accepted, pushed.seen, pushed.capped, pushed.outside)
            self._runtime.events.emit(LinksPushed(*counts, skipped=0))
        replaced = frontier.replaced_runs()
        return [link for part, _ in answered for link in part if link.target not in replaced]

    async def _remove(self, links: Sequence[KeptLink]) -> None:
        await self._runtime.retry.each_node(links, lambda link: link.shard, self._frontier.outboxes.deliver)

    def _advance(self, shard: int, read: Sequence[KeptLink], sent: Collection[KeptLink]) -> None:
        """Note from where the outbox of `shard` is read next: behind what could not be delivered."""
        left = [link.target for link in read if link not in sent]
        is_all = len(read) < LINKS_A_SHARD
        self._starts[shard] = 0 if is_all or not left else left[-1] + 1
