"""Settles the URLs of a group whose records are durable, and finds out which of its pages were not settled.

On a single server, one attempt suffices: it repeats its calls until they succeed. On a cluster, the nodes are asked side
by side, and what a node has not answered is left to the next attempt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from math import isfinite

from crawler.worker.commit_group import LeaseReport, Result
from crawler.worker.leased_domain import LeasedDomain
from crawler.worker.runtime import Runtime
from frontier.errors import RedisAway
from frontier.queue import Frontier
from frontier.settle import Settlement, SettleReply

Apply = Callable[[LeasedDomain, SettleReply, float], None]
"""Applies the reply to a call that was made at a time (monotonic seconds)."""

Keep = Callable[[Sequence[Result], Collection[int]], Awaitable[set[LeasedDomain]]]
"""Puts the links of results that belong to some shards into outboxes, and returns the domains for which it could not."""

Answered = list[tuple[LeasedDomain, SettleReply, float]]


class GroupSettler:
    """The last step of the commit of `results`."""

    def __init__(
        self, runtime: Runtime, frontier: Frontier, apply: Apply, keep: Keep, results: Sequence[Result]
    ) -> None:
        self._runtime = runtime
        self._frontier = frontier
        self._apply = apply
        self._keep = keep
        self._results = results
        self._open = defaultdict[LeasedDomain, LeaseReport](LeaseReport)  # whose settle call is not answered
        self._pages = [result for result in results if result.page is not None]
        # Number of a page of a stale lease -> whether it was not settled; None: unknown.
        self._answers: dict[int, bool | None] = {}
        self.stale: set[LeasedDomain] = set()

    def begin(self, duplicates: frozenset[str]) -> None:
        """Note what to report. `duplicates`: URLs whose content was archived before."""
        for result in self._results:
            if result.settled is not None:
                is_duplicate = result.settled.entry.url in duplicates
                self._open[result.leased].add(result.settled, result.page, is_duplicate)

    @property
    def open_domains(self) -> list[LeasedDomain]:
        """The leased domains whose URLs may be unsettled."""
        return list(self._open)

    @property
    def nodes(self) -> set[str]:
        """The nodes that have not answered."""
        open_shards = [leased.lease.shard for leased in self._open]
        return {self._runtime.retry.node_of(shard) for shard in [*open_shards, *self._doubtful_shards()]}

    @property
    def unsettled(self) -> list[int]:
        """The numbers, among the pages of the group, of those that were not settled and never will be."""
        return [number for number, is_unsettled in self._answers.items() if is_unsettled]

    async def attempt(self) -> bool:
        """Settle what is not settled. Returns whether the group is complete. If a server was restarted or replaced since
        the links were pushed, it may have lost them, so the pushes of the last seconds are repeated first: also those
        of earlier groups, because links that were pushed recently are left out of later pages. On a cluster, a server that
        cannot take them holds up nothing: the links of the group that belong to it go to outboxes."""
        if self._open:
            await (self._settle_each if self._runtime.retry.has_many_nodes else self._settle_all)()
        if not self._open:
            await self._judge_stale()
        return not self._open and not self._doubtful()

    async def _settle_all(self) -> None:
        async def settle() -> Answered:
            holding = [leased for leased in self._open if leased.holds(self._runtime.now())]
            repeated: dict[int, str] = {}
            while repeated != (runs := self._frontier.replaced_runs()):
                await self._frontier.repeat_pushes(runs)
                repeated = runs
            return await self._settle(holding, list(self._open))

        self._note(await self._runtime.retry.call(settle))

    async def _settle_each(self) -> None:
        retry, now = self._runtime.retry, self._runtime.now()
        domains = [leased for leased in self._open if not retry.is_shard_away(leased.lease.shard)]
        holding = [leased for leased in domains if leased.holds(now)]
        if runs := self._frontier.replaced_runs():
            unsafe = await self._repeat_pushes(runs)
            if self._frontier.replaced_runs() != runs:
                return
            domains = [leased for leased in domains if leased not in unsafe]
        parts = retry.split(domains, lambda leased: leased.lease.shard)
        for answer in (await retry.each(parts, lambda part: self._settle(holding, part))).values():
            if not isinstance(answer, RedisAway):
                self._note(answer)

    async def _repeat_pushes(self, runs: Collection[int]) -> set[LeasedDomain]:
        """Repeat the pushes of the last seconds to the shards in `runs`. Returns the domains that may not be settled."""
        retry = self._runtime.retry
        parts = retry.split(list(runs), lambda shard: shard)
        answers = await retry.each(parts, self._frontier.repeat_pushes)
        missed = {shard for node, part in parts.items() if isinstance(answers[node], RedisAway) for shard in part}
        if not missed:
            return set()
        return await self._keep([result for result in self._results if result.leased in self._open], missed)

    async def _settle(self, holding: Sequence[LeasedDomain], domains: Sequence[LeasedDomain]) -> Answered:
        """Settle the URLs of `domains`. A lease that has ended counts as stale even if Redis still has it, because other
        replicas may have given this one up. `holding`: those that held their leases when the links were pushed."""
        at, held = self._runtime.now(), set(holding)
        valid = [leased for leased in domains if leased in held and leased.holds(at)]
        replies = await self._frontier.settle(
            [settlement(self._runtime, leased, self._open[leased]) for leased in valid]
        )
        by_domain = dict(zip(valid, replies, strict=True))
        return [(leased, by_domain.get(leased, SettleReply(stale=True)), at) for leased in domains]

    def _note(self, answered: Answered) -> None:
        for leased, reply, at in answered:
            self._apply(leased, reply, at)
            if self._open.pop(leased, None) is not None and reply.stale:
                self.stale.add(leased)

    def _doubtful(self) -> list[int]:
        """The numbers of the pages of stale leases of which it is unknown whether they were settled."""
        if not self.stale:
            return []
        return [
            number
            for number, result in enumerate(self._pages)
            if result.leased in self.stale and number not in self._answers
        ]

    def _doubtful_shards(self) -> list[int]:
        return [self._pages[number].shard for number in self._doubtful()]

    async def _judge_stale(self) -> None:
        """If a settle call ended the lease but its reply was lost, the repeated call is answered "stale" although the page
        is settled. Redis is therefore asked which of these pages are settled."""
        retry = self._runtime.retry
        parts = retry.split(self._doubtful(), lambda number: self._pages[number].shard)

        async def revoke(numbers: Sequence[int]) -> list[bool | None]:
            return await self._frontier.revoke([self._pages[number].leased_url for number in numbers])

        for node, answer in (await retry.each(parts, revoke)).items():
            if not isinstance(answer, RedisAway):
                self._answers.update(zip(parts[node], answer, strict=True))


def settlement(runtime: Runtime, leased: LeasedDomain, report: LeaseReport) -> Settlement:
    """What `report` says about the lease of `leased`, and when its domain may be requested next."""
    next_ms, state = runtime.server_ms(leased.next_at), str(leased.backoff)
    # Without a response under this lease nothing is known that is not stored, and an operator may have changed that.
    delay_ms = leased.delay_ms if isfinite(leased.ended_at) else None
    counts = (report.received_bytes, report.duplicates, report.cut, report.items, report.rejected)
    return Settlement(leased.lease, next_ms, delay_ms, state, report.urls, *counts)
