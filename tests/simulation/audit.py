"""Compares the queues, blocks, leases, waiting URLs, outboxes and counters in Redis with the referee's ledger. A difference
is a breach.

`EndJudge` holds what is said of the end of the crawl against the ledger (I7).
Nobody can read all shards at one moment, so "the crawl has ended" is right if nothing was open at any one moment while
that was found out. More may be open by the time of the answer: a replica that was suspended, or that repeats its last
writes, puts links into shards and outboxes though the leases of their pages are long lost. They are links of pages that
were settled by others, so most of them change nothing there. A link that did not count when its page was fetched again
may count by then, and is queued after the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from frontier.entries import parse_entry
from frontier.keys import CrawlKeys, ShardKeys
from frontier.packing import rows_of
from frontier.scripts import Call, Reply
from tests.simulation.ledger import NOBODYS, Domain, Ledger
from tests.simulation.loop import Breach
from tests.simulation.wire import Wire


class Question(NamedTuple):
    """Whether the crawl has ended, asked at `at_ms`. `is_over`, `opened`: whether nothing was open then, and what ever
    was."""

    at_ms: float
    is_over: bool
    opened: int


class EndJudge:
    """Its `observe` is to be told of each call before the `ledger` is."""

    def __init__(self, ledger: Ledger, now_ms: Callable[[], float]) -> None:
        self._ledger = ledger
        self._now_ms = now_ms
        self._over_ms: float | None = None  # nothing was open until then

    def forget(self) -> None:
        """Record that the server has lost writes, so that what was settled may be open."""
        self._over_ms = None

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Note whether nothing was open until this call."""
        if self._is_over:
            self._over_ms = self._now_ms()

    @property
    def _is_over(self) -> bool:
        """Whether nothing is open, with the seeds pushed."""
        return bool(self._ledger.accepted) and not self._ledger.open

    def ask(self) -> Question:
        """What is known when somebody begins to find out whether the crawl has ended."""
        return Question(self._now_ms(), self._is_over, self._ledger.opened)

    def check_answer(self, question: Question, has_ended: bool, replica: str) -> None:
        """Raise Breach unless `has_ended` is a right answer to `question`."""
        if has_ended:
            self._check_over(question.at_ms, replica)
        elif question.is_over and question.opened == self._ledger.opened:
            raise Breach("I7", "the crawl is over and is said to go on", replica)

    def check_report(self, replica: str) -> None:
        """Raise Breach if the engine of `replica` ends its crawl although something was open at all times."""
        self._check_over(0.0, replica)

    def _check_over(self, since_ms: float, replica: str) -> None:
        was_over = self._over_ms is not None and self._over_ms >= since_ms
        if not (self._is_over or was_over):
            raise Breach("I7", f"the crawl is said to be over with {self._ledger.open} URLs open", replica)


def audit(wire: Wire, keys: CrawlKeys, ledger: Ledger, only: Set[str] | None = None) -> None:
    """Raises Breach unless Redis and the ledger say the same of all shards, or of those with the hash tags `only`. Leases
    that have run out count as long as they stand."""
    shards = [shard for shard in keys.shards if only is None or shard.base[:-1] in only]
    commands = [command for shard in shards for command in _reading(shard, ledger.domains_of(shard.base[:-1]))]
    replies = iter(wire.commands(commands))
    accepted = settled = 0
    for shard in shards:
        stats = _pairs(next(replies))
        kept = {member.decode() for member in next(replies)}
        _same("outbox", kept, ledger.outboxes.members(shard.base[:-1]), shard.base)
        waiting_links = int(stats.get("outboxed", 0)) - int(stats.get("delivered", 0))
        _same("links of the outbox by the counters", waiting_links, len(kept), shard.base)
        accepted += int(stats.get("accepted", 0))
        settled += sum(int(stats.get(outcome, 0)) for outcome in ("done", "denied", "dead"))
        _audit_shard(wire, replies, shard, ledger.domains_of(shard.base[:-1]))
    books = (len(ledger.accepted), len(ledger.settled))
    if only is None and (accepted, settled) != books:
        raise Breach("I1", f"Redis counts {accepted} accepted, {settled} settled; the ledger {books}")


def _reading(shard: ShardKeys, here: Sequence[Domain]) -> Iterator[tuple[Any, ...]]:
    """The commands whose replies `audit` goes through, in its order."""
    yield "HGETALL", shard.stats
    yield "ZRANGE", shard.outbox, 0, -1
    for key in (shard.due, shard.leases, shard.waiting):
        yield "ZRANGE", key, 0, -1, "WITHSCORES"
    for domain in here:
        yield "ZRANGE", shard.queue(domain.name), 0, -1, "WITHSCORES"
        yield "ZRANGE", shard.blocks(domain.name), 0, -1
        yield "ZRANGE", shard.inflight(domain.name), 0, -1, "WITHSCORES"
        yield "HMGET", shard.domain(domain.name), "token", "next", "packed"


def _audit_shard(wire: Wire, replies: Iterator[Any], shard: ShardKeys, here: Sequence[Domain]) -> None:
    due, leases, waiting = (_scores(next(replies)) for _ in range(3))
    later: dict[str, set[str]] = {}
    for member in waiting:
        name, _, raw = member.split("\n")
        later.setdefault(name, set()).add(_url(raw, name))
    for domain in here:
        name, held = domain.name, domain.holding
        queued = {_url(raw, name) for raw in _scores(next(replies))}
        packed = _packed(wire, shard, name, [block.decode() for block in next(replies)])
        inflight = {_url(raw, name) for raw in _scores(next(replies))}
        _same("packed", packed, domain.packed, name)
        _same("queued and packed at once", queued & packed, set(), name)
        _same("queued", queued | packed, set(domain.queued), name)
        _same("in flight", inflight, held.urls if held else set(), name)
        _same("waiting", later.get(name, set()), set(domain.waiting), name)
        token, next_ms, counted = next(replies)
        _same("number of packed URLs", int(counted or 0), len(packed), name)
        _same("token", token, str(held.token).encode() if held and held.token != NOBODYS else None, name)
        _same("end of the delay", int(next_ms or 0), domain.rests_until_ms, name)
        _same("lease", leases.get(name), held.until_ms if held else None, name)
        _same("due", name in due, bool(domain.queued) and held is None, name)
    strangers = (due.keys() | leases.keys() | later.keys()) - {domain.name for domain in here}
    _same("domains", strangers, set(), shard.base)


def _packed(wire: Wire, shard: ShardKeys, name: str, blocks: list[str]) -> set[str]:
    contents = wire.commands([("GET", shard.block(block, name)) for block in blocks]) if blocks else []
    missing = [block for block, text in zip(blocks, contents, strict=True) if text is None]
    _same("missing blocks", missing, [], name)
    return {_url(raw.decode(), name) for text in contents for _, raw in rows_of(text)}


def _same(what: str, redis: object, ledger: object, about: str) -> None:
    if redis != ledger:
        raise Breach("I1", f"{what} of {about}: Redis has {redis}, the ledger {ledger}", about)


def _url(raw: str, domain: str) -> str:
    return parse_entry(raw, domain, 0.0).url


def _scores(flat: list[Any]) -> dict[str, float]:
    return {member.decode(): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}


def _pairs(flat: list[Any]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}
