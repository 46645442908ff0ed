"""A survey of a crawl: its books, owners and noteworthy domains, read shard by shard with one small call each.

It serves those who watch a crawl. What it costs does not depend on how many URLs or domains there are: about 20 us of
the server's time a shard. It is therefore fit to be taken every few seconds by one replica for all the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from frontier.books import Counts, ShardOwner, counts_of
from frontier.keys import CrawlKeys
from frontier.scripts import SURVEY
from frontier.store import Call, Reply, Store, run

SHARDS_A_CALL = 128
"""Shards in one round trip: about 3 ms of the server's time, so nobody else waits long."""


@dataclass(frozen=True, slots=True)
class DomainSample:
    """A domain found at an end of its shard's sets. `at_ms`: when it is due, or when its lease ends, in server time.
    `queued`: URLs in its queue, those under lease not counted. `delay_ms`: None before the first fetch."""

    domain: str
    shard: int
    held: Literal["due", "leased"]
    at_ms: int
    queued: int
    delay_ms: int | None
    state: str  # the politeness layer's own text


@dataclass(frozen=True, slots=True)
class ShardSurvey:
    """One shard at one moment. `ready`: domains that are due by now; `oldest_due_ms`: since when the first of them is,
    None if no domain is due at all; `owner`: who leased there last, None if nobody did yet."""

    shard: int
    counts: Counts
    ready: int
    oldest_due_ms: int | None
    owner: ShardOwner | None
    domains: tuple[DomainSample, ...]


async def survey(store: Store, keys: CrawlKeys, shards: Sequence[int], now_ms: int, names: int) -> list[ShardSurvey]:
    """Survey `shards`, naming up to `names` domains at each end of their sets. Raises RedisAway.

    Sent in parts of `SHARDS_A_CALL`, so the whole is no single moment; each shard is.
    """
    surveys = []
    for at in range(0, len(shards), SHARDS_A_CALL):
        part = shards[at : at + SHARDS_A_CALL]
        replies = await store.send([_call(keys, shard, now_ms, names) for shard in part])
        surveys += [_parsed(shard, reply) for shard, reply in zip(part, replies, strict=True)]
    return surveys


def _call(keys: CrawlKeys, shard: int, now_ms: int, names: int) -> Call:
    of = keys.shards[shard]
    return run(SURVEY, (of.owner, of.due, of.leases, of.waiting, of.stats), now_ms, names)


def _parsed(shard: int, reply: Reply) -> ShardSurvey:
    _, stats, waiting, due, leased, ready, oldest, (epoch, replica, since), *domains = reply
    oldest_ms = int(float(oldest))
    return ShardSurvey(
        shard=shard,
        counts=counts_of(stats, waiting, due, leased),
        ready=ready,
        oldest_due_ms=None if oldest_ms < 0 else oldest_ms,
        owner=ShardOwner(shard, replica.decode(), int(epoch), int(since or 0)) if replica is not None else None,
        domains=tuple(_sample(shard, fields) for fields in domains),
    )


def _sample(shard: int, fields: Reply) -> DomainSample:
    held, domain, at, queued, delay, state = fields
    return DomainSample(
        domain=domain.decode(),
        shard=shard,
        held="leased" if held == b"leased" else "due",
        at_ms=int(float(at)),
        queued=queued,
        delay_ms=int(delay) if delay else None,
        state=state.decode(),
    )
