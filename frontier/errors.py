"""The errors of the frontier, by cause: the caller's input, Redis, or another replica."""

from __future__ import annotations

from collections.abc import Collection


class FrontierError(Exception):
    """Raised when the frontier cannot do what was requested. The base class of all its errors."""

    def reword(self, message: str) -> None:
        self.args = (message,)


class BadInput(FrontierError):
    """Raised when the caller's input is malformed. The message says how to correct it."""


class NoSuchCrawl(BadInput):
    """Raised when the store has no crawl of a name."""


class BadUrl(BadInput):
    """Raised when a text is not a URL that can be crawled. `reason`: one word for the counters."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"not a crawlable URL ({reason}): {text[:200]!r}")
        self.reason = reason


class RedisAway(FrontierError):
    """Raised when Redis is unreachable or cannot serve for now: retry later. `node`: that cannot, or ""."""

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class ReplicasMissing(RedisAway):
    """Raised when a node has carried out a write that too few of its replicas have. It serves everything else."""


class WrongType(RedisAway):
    """Raised when a key has a wrong type or value: somebody else has written over it. `key`: of the same shard, or of the
    crawl; `has_type`: it is known that one of them has a wrong type."""

    def __init__(self, message: str, node: str, key: str, has_type: bool) -> None:
        super().__init__(message, node)
        self.key = key
        self.has_type = has_type


class WritesRefused(RedisAway):
    """Raised when a server refuses writes, for example because its disk is full. It may answer reads anyway."""


class RedisMisused(FrontierError):
    """Raised when Redis refuses permanently: wrong password, too old a version."""


class SchemaMismatch(FrontierError):
    """Raised when the crawl's keys were written by another version of the key schema."""


class SettingsOutdated(FrontierError):
    """Raised when a crawl's settings were changed since they were read. Nothing was written."""


class Resharding(FrontierError):
    """Raised when a crawl's number of shards is being changed. `progress`: of it; `advice`: if it goes no further."""

    def __init__(self, crawl: str, progress: object, advice: str) -> None:
        self.progress = progress
        super().__init__(f"crawl {crawl!r} is {progress}; {advice}")


class StillAdded(FrontierError):
    """Raised when something adds URLs of a domain again while it is being forgotten."""


class CrawlLost(FrontierError):
    """Raised when Redis no longer holds the crawl that was opened, or holds another crawl with the same name."""


class CrawlResharded(CrawlLost):
    """Raised when the crawl that was opened has another number of shards by now."""


class ShardLost(CrawlLost):
    """Raised when shards no longer hold the data of their crawl. `shards`: their numbers."""

    def __init__(self, crawl: str, shards: Collection[int]) -> None:
        self.shards = sorted(shards)
        named = ", ".join(map(str, self.shards[:8])) + (", ..." if len(self.shards) > 8 else "")
        super().__init__(
            f"crawl {crawl!r} has lost {len(self.shards)} of its shards in Redis ({named}): a server came back without "
            "its data, or was cleared; restore the data, or run `crawler repair`"
        )


class Fenced(FrontierError):
    """Raised when a newer view assigns the shard to another replica. The caller must not lease from it."""
