"""Finds the keys of shards on all servers, page by page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from frontier.pipelining import send_in_parts
from frontier.redis_keys import ShardKeys, shard_keys
from frontier.shard_contents import Key
from frontier.store import Call, Reply, Store

PAGE = 200
"""Keys found in one step."""

PROBES = 4096
"""Names of shards by which the nodes of a cluster are found: enough for some hundred nodes."""

AT_ONCE = 128
"""Calls in one round trip."""


async def asked(store: Store, calls: Sequence[Call]) -> list[Reply]:
    """The replies to `calls`, which are sent in parts."""
    replies: list[Reply] = []
    parts = (calls[at : at + AT_ONCE] for at in range(0, len(calls), AT_ONCE))
    await send_in_parts(store.send, parts, replies.extend)
    return replies


def nodes_of(store: Store, shards: Sequence[ShardKeys]) -> list[str]:
    """A key of each node that serves some of `shards`."""
    return list({store.node_of(of.base): of.base for of in shards}.values())


async def key_count(store: Store, shards: Sequence[ShardKeys]) -> int:
    """How many keys the nodes of `shards` have."""
    return sum(await store.send([Call(("DBSIZE",), at=base) for base in nodes_of(store, shards)]))


async def pages(store: Store, crawl: str, shards: Sequence[ShardKeys], layout: int) -> AsyncIterator[list[Key]]:
    """All keys of `shards`, which are those of `layout`, some of them more than once."""
    async for page in pages_of_all(store, crawl, shards):
        yield [key for number, key in page if number == layout]


async def pages_of_all(
    store: Store, crawl: str, shards: Sequence[ShardKeys] | None = None
) -> AsyncIterator[list[tuple[int, Key]]]:
    """All keys of the shards of `crawl` on the nodes of `shards`, or on all nodes, with the number of the layout of each,
    some of them more than once."""
    if shards is None:
        shards = [shard_keys(crawl, number) for number in range(PROBES)]
    form = re.compile(rf"\{{{re.escape(crawl)}:(\d+)(?:@(\d+))?\}}:(.*)".encode(), re.DOTALL)
    pattern = f"{{{crawl}:*}}:*"
    for base in nodes_of(store, shards):
        cursor: int | None = None
        while cursor != 0:
            ((following, found),) = await store.send(
                [Call(("SCAN", cursor or 0, "MATCH", pattern, "COUNT", PAGE), at=base)]
            )
            cursor = int(following)
            matches = ((form.fullmatch(key), key) for key in found)
            yield [
                (int(match[2] or 0), Key(int(match[1]), match[3].decode(), key.decode()))
                for match, key in matches
                if match
            ]
