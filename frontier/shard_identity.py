"""The identity of shards: gives it to them when a crawl is created, and finds those that have lost their data.

Each shard holds the identity of its crawl. A server that came back empty has none, and a shard of it would otherwise look
like one in which all is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from frontier.counters import SHARDS_A_PART
from frontier.errors import CrawlLost, CrawlResharded, ShardLost
from frontier.pipelining import send_in_parts
from frontier.redis_keys import CrawlKeys
from frontier.scripts import IDENTIFY_SHARD
from frontier.store import Reply, Store, command, script_call


async def identify_shards(
    store: Store, keys: CrawlKeys, shards: Sequence[int], former: str = "", cancelled: str = ""
) -> None:
    """Give `shards` the identity of the crawl. `former`: an identity that it replaces; `cancelled`: the last claim of a
    reshard that is cancelled. Repeating the call is harmless.

    Raises CrawlLost if a shard belongs to another crawl of that name, CrawlResharded if another command for the same crawl
    has given it another identity, and RedisAway.
    """
    calls = (
        [
            script_call(IDENTIFY_SHARD, (of.stats, of.owner), keys.identity, former, store.run_of(of.base), cancelled)
            for of in (keys.shards[shard] for shard in shards[at : at + SHARDS_A_PART])
        ]
        for at in range(0, len(shards), SHARDS_A_PART)
    )
    foreign: list[str] = []

    def look(replies: list[Reply]) -> None:
        foreign.extend(reply[1].decode() for reply in replies if reply[0] == b"foreign")

    await send_in_parts(store.send, calls, look)
    if foreign and all(_fingerprint_key(identity) == _fingerprint_key(keys.identity) for identity in foreign):
        raise CrawlResharded(
            f"{len(foreign):,} of the shards that this command has to fill belong to another command, of which Redis may "
            f"have lost its record; run the command for crawl {keys.crawl!r} again"
        )
    if foreign:
        raise CrawlLost(
            f"{len(foreign)} shards of crawl {keys.crawl!r} hold data of another crawl of that name, whose {keys.meta} is "
            "gone; restore that key, choose another name, or remove all keys of the crawl"
        )


def _fingerprint_key(identity: str) -> str:
    """That of the crawl, with which all its identities begin."""
    return identity.partition(":")[0]


async def lost_shards(store: Store, keys: CrawlKeys, shards: Sequence[int] | None = None) -> Mapping[int, str]:
    """Those of `shards`, or of all, that lack the identity of the crawl, and the identity that each has instead, "" for
    none. Raises RedisAway."""
    asked = range(len(keys.shards)) if shards is None else shards
    found: list[str] = []
    calls = (
        [command("HGET", keys.shards[shard].stats, "crawl") for shard in asked[at : at + SHARDS_A_PART]]
        for at in range(0, len(asked), SHARDS_A_PART)
    )
    await send_in_parts(store.send, calls, lambda replies: found.extend((one or b"").decode() for one in replies))
    return {shard: identity for shard, identity in zip(asked, found, strict=True) if identity != keys.identity}


def frozen(keys: CrawlKeys) -> str:
    """The identity of the shards of `keys` while, and after, a reshard copies them."""
    return f"{keys.identity}:moved"


def check_not_frozen(keys: CrawlKeys, lost: Mapping[int, str]) -> None:
    """Raises CrawlResharded if `lost` are shards of an open crawl that a reshard has frozen: the server that knew of it has
    lost that. No data is missing."""
    if lost and all(identity == frozen(keys) for identity in lost.values()):
        raise CrawlResharded(
            f"a reshard of crawl {keys.crawl!r} has frozen {len(lost):,} of its {len(keys.shards):,} shards, and Redis has "
            "lost who began it; nothing else is lost: run `crawler reshard --shards N` again, which completes it"
        )


def check_identity(crawl: str, shards: Iterable[int], replies: Iterable[Reply]) -> None:
    """Raises ShardLost if a script has replied that its shard lacks the identity of `crawl`. `replies`: one for each of
    `shards`."""
    if lost := {shard for shard, reply in zip(shards, replies, strict=True) if reply[0] == b"lost"}:
        raise ShardLost(crawl, lost)
