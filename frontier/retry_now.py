"""Has a domain requested again at once, for an operator who knows that its site works again (`crawler retry`)."""

from __future__ import annotations

import msgspec

from frontier.domains import shard_of
from frontier.lookup import escaped
from frontier.redis_keys import CrawlKeys
from frontier.scripts import RETRY_NOW
from frontier.store import Store, command, pairs, script_call

SCAN_COUNT = 2_000
"""Waiting URLs of a shard that are searched in one call, which takes about 2 ms."""

AT_ONCE = 500
"""Waiting URLs that one call makes ready, which then takes about 1 ms."""


class RetryReply(msgspec.Struct, frozen=True):
    """`ready`: how many URLs no longer wait. `queued`: how many others are queued. `is_held`: the domain is being requested
    now, so its backoff stays."""

    ready: int
    queued: int
    is_held: bool


async def retry_now(store: Store, keys: CrawlKeys, domain: str, now_ms: int, delay_ms: int) -> RetryReply:
    """End the backoff of `domain`, and have its URLs that wait for a retry tried now, in any order. Its delay stays.
    `delay_ms`: that of a domain that has none of its own. Repeating the call is harmless. Raises RedisAway."""
    shard = keys.shards[shard_of(domain, len(keys.shards))]
    found, cursor = set[str](), 0
    while True:
        words = ("ZSCAN", shard.waiting, cursor, "MATCH", f"{escaped(domain)}\n*", "COUNT", SCAN_COUNT)
        ((cursor, members),) = await store.send([command(*words)])
        found |= pairs(members).keys()
        if not int(cursor):
            break
    members = sorted(found)
    names = (shard.due, shard.leases, shard.waiting, shard.domain(domain))
    calls = [
        script_call(RETRY_NOW, names, domain, now_ms, delay_ms, *members[at : at + AT_ONCE])
        for at in range(0, max(1, len(members)), AT_ONCE)
    ]
    *replies, queued = await store.send([*calls, command("ZCARD", shard.queue(domain))])
    return RetryReply(sum(int(reply[1]) for reply in replies), queued, replies[-1][0] == b"held")
