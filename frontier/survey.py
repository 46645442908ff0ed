"""Surveys a crawl: reads its counters, owners and some of its domains, with one small call per shard.

The result is shown to people who watch a crawl. On a cluster, the shards of nodes that are away are left out. A shard takes
70 to 100 us of the server's time, whatever the number of URLs and domains. So one replica can take a survey every few
seconds for all the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Literal

import msgspec

from frontier.counters import SHARDS_A_PART, LastHolder, ShardCounters, last_holder, shard_counters
from frontier.errors import RedisAway
from frontier.pipelining import send_in_parts
from frontier.redis_keys import CrawlKeys
from frontier.scripts import SURVEY
from frontier.store import Call, Reply, Store, command, script_call


class DomainSample(msgspec.Struct, frozen=True):
    """A domain found at an end of its shard's sets. `at_ms`: when it is due, when its lease ends, or when the first of its
    waiting URLs is ready, in server time. `queued`: number of URLs in its queue, without leased ones; of a waiting domain,
    which has none in its queue, how many of those that wait were found."""

    domain: str
    shard: int
    held: Literal["due", "leased", "waiting"]
    at_ms: int
    queued: int


class DomainDelay(msgspec.Struct, frozen=True):
    """The delay of a domain, None before the first fetch. `state`: the politeness layer's own text; `robots`: its records
    of robots.txt files, not read for leased domains."""

    delay_ms: int | None
    state: str
    robots: tuple[bytes, ...] = ()


class ShardSurvey(msgspec.Struct, frozen=True):
    """The state of one shard, read atomically. `ready`: number of domains that are due now; `oldest_due_ms`: when the first
    queued domain is or was due, None if none is queued; `last_holder`: the replica that last leased from it, None if none
    has; `identity`: of the crawl whose data the shard has, "" if it has lost them."""

    shard: int
    counters: ShardCounters
    ready: int
    oldest_due_ms: int | None
    last_holder: LastHolder | None
    domains: tuple[DomainSample, ...]
    identity: str


async def survey(store: Store, keys: CrawlKeys, shards: Sequence[int], now_ms: int, names: int) -> list[ShardSurvey]:
    """Survey `shards`, and list up to `names` domains, at least 1, at each end of their sets. The shards of nodes that are
    away are missing in the result. Raises RedisAway if no shard can be read.

    The calls are sent in parts of `SHARDS_A_PART`. Each shard is read atomically, but the whole survey is not.
    """
    calls = (
        [_call(keys, shard, now_ms, names) for shard in shards[at : at + SHARDS_A_PART]]
        for at in range(0, len(shards), SHARDS_A_PART)
    )
    numbers = iter(shards)
    surveys: list[ShardSurvey] = []
    away: list[RedisAway] = []

    def look(replies: list[Reply]) -> None:
        for shard, reply in zip(islice(numbers, len(replies)), replies, strict=True):
            if isinstance(reply, RedisAway):
                away.append(reply)
            else:
                surveys.append(_parsed(shard, reply))

    await send_in_parts(store.send_each, calls, look)
    if away and not surveys:
        raise away[0]
    return surveys


async def domain_delays(store: Store, keys: CrawlKeys, samples: Iterable[DomainSample]) -> dict[str, DomainDelay]:
    """The delay and state of the domains of `samples`, by domain; unknown for those on nodes that are away."""
    found = {sample.domain: sample for sample in samples}
    idle = [sample for sample in found.values() if sample.held != "leased"]
    calls = [command("HMGET", keys.shards[one.shard].domain(one.domain), "delay", "state") for one in found.values()]
    calls += [command("HVALS", keys.shards[one.shard].robots(one.domain)) for one in idle]
    replies = await store.send_each(calls) if calls else []
    robots = dict(zip((one.domain for one in idle), replies[len(found) :], strict=True))
    return {name: _delay(reply, robots.get(name, ())) for name, reply in zip(found, replies, strict=False)}


def _delay(reply: Reply | RedisAway, robots: Reply | RedisAway) -> DomainDelay:
    delay, state = (None, None) if isinstance(reply, RedisAway) else reply
    records = () if isinstance(robots, RedisAway) else tuple(robots)
    return DomainDelay(int(delay) if delay else None, state.decode() if state else "", records)


def _call(keys: CrawlKeys, shard: int, now_ms: int, names: int) -> Call:
    of = keys.shards[shard]
    return script_call(SURVEY, (of.stats, of.base), now_ms, names)


def _parsed(shard: int, reply: Reply) -> ShardSurvey:
    _, stats, waiting, due, leased, ready, oldest, holder, *domains = reply
    oldest_ms = int(float(oldest))
    counters = shard_counters(stats, waiting, due, leased)
    return ShardSurvey(
        shard=shard,
        counters=counters,
        ready=ready,
        oldest_due_ms=None if oldest_ms < 0 else oldest_ms,
        last_holder=last_holder(shard, *holder),
        domains=tuple(_sample(shard, *fields) for fields in domains),
        identity=counters.stats.get(b"crawl", b"").decode(),
    )


def _sample(shard: int, held: bytes, domain: bytes, at: bytes, queued: int) -> DomainSample:
    return DomainSample(domain.decode(), shard, held.decode(), int(float(at)), queued)  # type: ignore[arg-type]
