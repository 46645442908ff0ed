"""Every key of the frontier in Redis against the referee's ledger. What is in neither, or only in one, is a breach."""

from __future__ import annotations

from typing import Any

from frontier.entries import parse_entry
from frontier.keys import CrawlKeys, ShardKeys
from tests.simulation.history import Breach
from tests.simulation.ledger import Domain, Ledger
from tests.simulation.wire import Wire


def audit(wire: Wire, keys: CrawlKeys, ledger: Ledger) -> None:
    """Raises Breach unless Redis and the ledger say the same. Leases that have run out count as long as they stand."""
    settled = accepted = 0
    by_shard: dict[str, list[Domain]] = {}
    for domain in ledger.domains.values():
        by_shard.setdefault(domain.shard, []).append(domain)
    for shard in keys.shards:
        here = by_shard.get(shard.base[:-1], [])
        stats = _pairs(wire.command("HGETALL", shard.stats))
        accepted += int(stats.get("accepted", 0))
        settled += sum(int(stats.get(outcome, 0)) for outcome in ("done", "denied", "dead"))
        _audit_shard(wire, shard, here)
    books = (len(ledger.accepted), len(ledger.settled))
    if (accepted, settled) != books:
        raise Breach("I1", f"Redis counts {accepted} accepted, {settled} settled; the ledger {books}")


def _audit_shard(wire: Wire, shard: ShardKeys, here: list[Domain]) -> None:
    due = _scores(wire, shard.due)
    leases = _scores(wire, shard.leases)
    waiting = {tuple(member.split("\n")) for member in _scores(wire, shard.waiting)}
    for domain in here:
        name = domain.name
        queued = {_url(raw, name) for raw in _scores(wire, shard.queue(name))}
        inflight = {_url(raw, name) for raw in _scores(wire, shard.inflight(name))}
        later = {_url(raw, name) for owner, _, raw in waiting if owner == name}
        token = wire.command("HGET", shard.domain(name), "token")
        held = domain.holding
        _same("queued", queued, set(domain.queued), name)
        _same("in flight", inflight, held.urls if held else set(), name)
        _same("waiting", later, set(domain.waiting), name)
        _same("token", token, str(held.token).encode() if held else None, name)
        _same("lease", leases.get(name), held.until_ms if held else None, name)
        _same("due", name in due, bool(domain.queued) and held is None, name)
    names = {domain.name for domain in here}
    strangers = (due.keys() | leases.keys() | {owner for owner, *_ in waiting}) - names
    _same("domains", strangers, set(), shard.base)


def _same(what: str, redis: object, ledger: object, about: str) -> None:
    if redis != ledger:
        raise Breach("I1", f"{what} of {about}: Redis has {redis}, the ledger {ledger}", about)


def _url(raw: str, domain: str) -> str:
    return parse_entry(raw, domain, 0.0).url


def _scores(wire: Wire, key: str) -> dict[str, float]:
    flat: list[Any] = wire.command("ZRANGE", key, 0, -1, "WITHSCORES")
    return {member.decode(): float(score) for member, score in zip(flat[::2], flat[1::2], strict=True)}


def _pairs(flat: list[Any]) -> dict[str, str]:
    return {key.decode(): value.decode() for key, value in zip(flat[::2], flat[1::2], strict=True)}
