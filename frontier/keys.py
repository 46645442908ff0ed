"""Builds the Redis keys of a crawl.

Keys of a shard have the hash tag ``{crawl:shard}``, keys of the whole crawl ``{crawl}``, and the rate limit of each address
a tag of its own. So on a Redis Cluster all keys of a script are in one slot (Redis Cluster specification, "Hash tags").
Scripts build the keys that contain a domain, a bucket or a block themselves, with the same tag.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

import msgspec

from frontier.domains import shard_of
from frontier.errors import BadInput

SCHEMA = 12
"""Version of the key schema. It increases when the name, type or encoding of a key changes."""

MOST_SHARDS = 65_536
"""Enough for a thousand replicas with 64 shards each, more than the even spread needs. A shard takes 3 KB of Redis, and the
keys and owners of all take 15 MB in each replica."""

_CRAWL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class _Key:
    """A key of a shard: its prefix and the name of this attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, of: ShardKeys, owner: type) -> str:
        return of.base + self._name


class ShardKeys(msgspec.Struct, frozen=True):
    """The keys of one shard. The methods return the keys of one domain or bucket in it."""

    base: str

    owner = _Key()
    """The fence: the epoch and the replica that last leased here, the last holder. The owner is in the view."""
    acked = _Key()
    due = _Key()
    urgent = _Key()
    leases = _Key()
    waiting = _Key()
    stats = _Key()
    dead = _Key()
    lost = _Key()
    outbox = _Key()
    revisits = _Key()

    def visits(self, domain: str) -> str:
        return f"{self.base}visits:{domain}"

    def known(self, domain: str) -> str:
        return f"{self.base}known:{domain}"

    def queue(self, domain: str) -> str:
        return f"{self.base}q:{domain}"

    def blocks(self, domain: str) -> str:
        return f"{self.base}blocks:{domain}"

    def block(self, block: str, domain: str) -> str:
        return f"{self.base}block:{block}:{domain}"

    def inflight(self, domain: str) -> str:
        return f"{self.base}inflight:{domain}"

    def domain(self, domain: str) -> str:
        return f"{self.base}d:{domain}"

    def robots(self, domain: str) -> str:
        return f"{self.base}robots:{domain}"

    def seen(self, bucket: int) -> str:
        return f"{self.base}seen:{bucket}"


_OF_SHARD = {
    **dict.fromkeys(("owner", "stats", "dead"), "hash"),
    **dict.fromkeys(("due", "urgent", "leases", "waiting", "lost", "outbox", "revisits"), "zset"),
    "acked": "string",
}
_OF_CRAWL = {
    **dict.fromkeys(("meta", "peers:claims", "peers:roster", "peers:owners", "peers:clock", "peers:running"), "hash"),
    **dict.fromkeys(("budget", "control", "domains", "types", "values"), "hash"),
    **dict.fromkeys(("peers:health", "budget:takers", "wanted"), "zset"),
    **dict.fromkeys(("draft", "peers", "peers:numbers", "summary"), "string"),
}
_PREFIX = re.compile(r"\{[^:{}]+(:[0-9]+(@[0-9]+)?)?\}:")


def prefix_of(key: str) -> str:
    """What the keys of the shard or crawl of `key` begin with, "" if it belongs to neither."""
    found = _PREFIX.match(key)
    return found[0] if found else ""


def types_of(prefix: str) -> dict[str, str]:
    """The keys of a shard or crawl that there may be one of each, and their types. `prefix`: what they begin with."""
    found = _PREFIX.fullmatch(prefix)
    types = {} if found is None else _OF_SHARD if found[1] else _OF_CRAWL
    return {prefix + name: kind for name, kind in types.items()}


class CrawlKeys:
    """The keys of the crawl `crawl`, which has `shards` shards. `identity`: what its shards hold to tell it from an empty
    store and from another crawl of that name. `last_tokens`: the last token of each former layout, which had another number
    of shards (`frontier.reshard`). Raises BadInput for an invalid name."""

    def __init__(self, crawl: str, shards: int, identity: str = "", last_tokens: tuple[int, ...] = ()) -> None:
        check_crawl_name(crawl)
        self.crawl = crawl
        self.identity = identity
        self.last_tokens = last_tokens
        self.layout = layout_number(last_tokens)
        self.shards = tuple(shard_keys(crawl, number, self.layout) for number in range(shards))
        self.peers = f"{{{crawl}}}:peers"
        self.meta = meta_key(crawl)
        self.draft = f"{{{crawl}}}:draft"
        self.budget = f"{{{crawl}}}:budget"
        self.takers = f"{{{crawl}}}:budget:takers"
        self.control = f"{{{crawl}}}:control"
        self.wanted = f"{{{crawl}}}:wanted"
        self.domains = f"{{{crawl}}}:domains"
        self.summary = f"{{{crawl}}}:summary"
        self.types = f"{{{crawl}}}:types"
        self.values = f"{{{crawl}}}:values"

    def shard_of(self, domain: str) -> int:
        """The number of the shard of `domain`."""
        return shard_of(domain, len(self.shards))

    def of(self, domain: str) -> ShardKeys:
        return self.shards[self.shard_of(domain)]

    def rate_limit(self, address: str) -> str:
        """The rate limit of one network address. It has its own hash tag, so that addresses are spread over a cluster."""
        return f"{{{self.crawl}:rate_limit:{address}}}"

    def __repr__(self) -> str:
        return f"<CrawlKeys {self.crawl} shards={len(self.shards)}>"


def with_identity(keys: CrawlKeys, identity: str) -> CrawlKeys:
    """The same keys, for shards that hold `identity`."""
    return CrawlKeys(keys.crawl, len(keys.shards), identity, keys.last_tokens)


ATTEMPTS = 10_000
"""The last token of a layout, modulo this, is the number of the claim (`lua/begin_reshard.lua`) whose command made the next
layout."""


def layout_number(last_tokens: Sequence[int]) -> int:
    """The number of the layout after those with `last_tokens`, from 0. Each command that makes one has its own."""
    return 1 + last_tokens[-1] % ATTEMPTS if last_tokens else 0


def was_made_until(layout: int, last: int) -> bool:
    """Whether `layout` was made by the command with the claim `last`, or by one of the 5,000 before it."""
    return layout > 0 and (last - (layout - 1)) % ATTEMPTS < ATTEMPTS // 2


def owners_table(layout: int) -> str:
    """The name of the table with the owners of the shards of `layout` (`PeerSettings.table`)."""
    return f"@{layout}" if layout else ""


def shard_keys(crawl: str, number: int, layout: int = 0) -> ShardKeys:
    """The keys of the shard `number`. Each `layout` has its own, so that replicas do not confuse them."""
    return ShardKeys(f"{{{crawl}:{number}@{layout}}}:" if layout else f"{{{crawl}:{number}}}:")


def shard_number(key: str) -> int:
    return int(key.partition(":")[2].partition("}")[0].partition("@")[0])


def layout_of(token: int, last_tokens: Sequence[int]) -> int:
    """The number of the layout in which `token` was given out. Tokens of a layout are above those of all former ones."""
    return layout_number(last_tokens[: bisect_left(last_tokens, token)])


def tokens_of(field: bytes | None) -> tuple[int, ...]:
    """The field `last_tokens` of a crawl's `meta` key."""
    return tuple(int(token) for token in (field or b"").split())


def turn_keys(domain: str) -> tuple[str, str]:
    """The keys of all crawls on a server that share the delay of `domain` (`lua/take_turn.lua`)."""
    return f"{{peercrawl turn:{domain}}}", f"{{peercrawl turn:{domain}}}:next"


def meta_key(crawl: str) -> str:
    """The key that holds schema version, shard count and settings. It does not depend on the shard count."""
    return f"{{{crawl}}}:meta"


def check_crawl_name(crawl: str) -> None:
    """Raises BadInput unless `crawl` can be used in keys and file names."""
    if not _CRAWL_NAME.fullmatch(crawl):
        raise BadInput(
            f"crawl name {crawl!r}: use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        )
