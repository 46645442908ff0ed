"""Builds the Redis keys of a crawl.

Keys of a shard have the hash tag ``{crawl:shard}``, keys of the whole crawl ``{crawl}``, and the rate limit of each address
a tag of its own. So on a Redis Cluster all keys of a script are in one slot (Redis Cluster specification, "Hash tags").
Scripts build the keys that contain a domain, a bucket or an epoch themselves, with the same tag.
"""

from __future__ import annotations

import re

import msgspec

from frontier.errors import BadInput

SCHEMA = 6
"""Version of the key schema. It increases when the name, type or encoding of a key changes."""

_CRAWL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class ShardKeys(msgspec.Struct, frozen=True):
    """The keys of one shard. The methods return the keys of one domain or bucket in it."""

    base: str

    @property
    def owner(self) -> str:
        return self.base + "owner"

    @property
    def acked(self) -> str:
        return self.base + "acked"

    @property
    def due(self) -> str:
        return self.base + "due"

    @property
    def leases(self) -> str:
        return self.base + "leases"

    @property
    def waiting(self) -> str:
        return self.base + "waiting"

    @property
    def stats(self) -> str:
        return self.base + "stats"

    @property
    def dead(self) -> str:
        return self.base + "dead"

    @property
    def lost(self) -> str:
        return self.base + "lost"

    @property
    def outbox(self) -> str:
        return self.base + "outbox"

    def queue(self, domain: str) -> str:
        return f"{self.base}q:{domain}"

    def inflight(self, domain: str) -> str:
        return f"{self.base}inflight:{domain}"

    def domain(self, domain: str) -> str:
        return f"{self.base}d:{domain}"

    def robots(self, domain: str) -> str:
        return f"{self.base}robots:{domain}"

    def seen(self, bucket: int) -> str:
        return f"{self.base}seen:{bucket}"


class CrawlKeys:
    """The keys of the crawl `crawl`, which has `shards` shards. `identity`: what its shards hold to tell it from an empty
    store and from another crawl of that name. Raises BadInput for an invalid name."""

    def __init__(self, crawl: str, shards: int, identity: str = "") -> None:
        check_crawl_name(crawl)
        self.crawl = crawl
        self.identity = identity
        self.shards = tuple(shard_keys(crawl, number) for number in range(shards))
        self.peers = f"{{{crawl}}}:peers"
        self.meta = meta_key(crawl)
        self.draft = f"{{{crawl}}}:draft"
        self.budget = f"{{{crawl}}}:budget"
        self.takers = f"{{{crawl}}}:budget:takers"
        self.control = f"{{{crawl}}}:control"
        self.duties = f"{{{crawl}}}:duties"
        self.domains = f"{{{crawl}}}:domains"
        self.summary = f"{{{crawl}}}:summary"

    def rate_limit(self, address: str) -> str:
        """The rate limit of one network address. It has its own hash tag, so that addresses are spread over a cluster."""
        return f"{{{self.crawl}:rate_limit:{address}}}"

    def __repr__(self) -> str:
        return f"<CrawlKeys {self.crawl} shards={len(self.shards)}>"


def shard_keys(crawl: str, number: int) -> ShardKeys:
    """The keys of the shard `number` of `crawl`."""
    return ShardKeys(f"{{{crawl}:{number}}}:")


def meta_key(crawl: str) -> str:
    """The key that holds schema version, shard count and settings. It does not depend on the shard count."""
    return f"{{{crawl}}}:meta"


def check_crawl_name(crawl: str) -> None:
    """Raises BadInput unless `crawl` can be used in keys and file names."""
    if not _CRAWL_NAME.fullmatch(crawl):
        raise BadInput(
            f"crawl name {crawl!r}: use 1 to 64 letters, digits, '.', '_' or '-', beginning with a letter or digit"
        )
