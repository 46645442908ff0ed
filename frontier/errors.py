"""What may go wrong in the frontier. The first split is whose fault it is."""

from __future__ import annotations


class FrontierError(Exception):
    """Raised when the frontier cannot do what was asked; the base of all its errors."""


class BadInput(FrontierError):
    """Raised when the caller gave something malformed; the message says what to do."""


class BadUrl(BadInput):
    """Raised when a text is not a URL that can be crawled; `reason` is one word for counters."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(f"not a crawlable URL ({reason}): {text[:200]!r}")
        self.reason = reason


class RedisAway(FrontierError):
    """Raised when Redis cannot be reached or cannot serve now; trying again later is right."""


class RedisMisused(FrontierError):
    """Raised when Redis answers but refuses for good: wrong password, too old, wrong type of a key."""


class SchemaMismatch(FrontierError):
    """Raised when the crawl's keys were written by another version of the key schema."""


class SettingsMoved(FrontierError):
    """Raised when somebody else has changed a crawl's settings since they were read; nothing was written."""


class CrawlLost(FrontierError):
    """Raised when Redis no longer holds the crawl that was opened, or holds another one of its name."""


class Fenced(FrontierError):
    """Raised when a newer view has given the shard to another replica; the caller must not lease from it."""
