"""A group of results that are committed together, and what is known of each lease after that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from crawler.page import Exchange, Page
from crawler.worker.leased_domain import LeasedDomain
from frontier.entries import Entry
from frontier.settle import LeasedUrl, SettledUrl

LINK_BYTES = 200
"""Of memory for a link: its object, its URL of 80 characters, and its place in a list."""


MOST_WORDS = 20
"""Words by which the items of a lease are counted in a call, and as many for its rejected ones: a script can pass on the
words of 64 leases."""

OTHER = "other"
"""By this the further ones are counted."""


class Result(msgspec.Struct, frozen=True):
    """The result of one turn of a leased domain: a settled URL with its page, links to push, or a
    response to archive that settles nothing: of a robots.txt, or a redirect of a URL to itself."""

    leased: LeasedDomain
    settled: SettledUrl | None = None
    page: Page | None = None
    links: Sequence[Entry] = ()
    exchange: Exchange | None = None  # that settles nothing

    @property
    def shard(self) -> int:
        """The shard of the domain."""
        return self.leased.lease.shard

    @property
    def leased_url(self) -> LeasedUrl:
        """The settled URL and its lease."""
        assert self.settled is not None
        lease = self.leased.lease
        return LeasedUrl(lease.shard, lease.domain, lease.token, self.settled.entry)

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes until it is written: its body and its links."""
        page = self.page
        exchange = self.exchange if page is None else page.exchange
        links = len(self.links) + (0 if page is None else len(page.links))
        return LINK_BYTES * links + (0 if exchange is None else len(exchange.body))

    def unless_in(self, failed: frozenset[str]) -> Result:
        """This result, settled as a defect if its page is one of those that a sink could not handle."""
        if self.page is None or self.settled is None or self.page.url not in failed:
            return self
        page = self.page.failed()
        return msgspec.structs.replace(
            self, page=page, settled=SettledUrl(self.settled.entry, page.outcome, page.reason)
        )


class Group(msgspec.Struct):
    """Results to commit together, and leased domains whose leases are returned after that."""

    results: list[Result] = msgspec.field(default_factory=list)
    closing: list[LeasedDomain] = msgspec.field(default_factory=list)
    first_at: float = 0.0  # monotonic seconds when the first result came
    memory_bytes: int = 0  # of all results

    def add(self, result: Result, now: float) -> None:
        """Add `result`, which came `now` (monotonic seconds)."""
        self.first_at = self.first_at if self.results else now
        self.results.append(result)
        self.memory_bytes += result.memory_bytes

    def put_first(self, other: Group) -> None:
        """Put the contents of `other`, which came earlier, before those of this group."""
        self.first_at = other.first_at if other.results else self.first_at
        self.results[:0] = other.results
        self.closing[:0] = other.closing
        self.memory_bytes += other.memory_bytes


class LeaseReport(msgspec.Struct):
    """What a group reports to Redis about one lease."""

    urls: list[SettledUrl] = msgspec.field(default_factory=list)
    received_bytes: int = 0
    duplicates: int = 0
    cut: dict[str, int] = msgspec.field(default_factory=dict)
    items: dict[str, int] = msgspec.field(default_factory=dict)
    rejected: dict[str, int] = msgspec.field(default_factory=dict)

    def add(self, settled: SettledUrl, page: Page | None, is_duplicate: bool) -> None:
        """Add one URL of the domain."""
        self.urls.append(settled)
        self.duplicates += is_duplicate
        if page is not None and page.exchange is not None:
            self.received_bytes += len(page.exchange.body)
            for reason in page.cut:
                self.cut[reason] = self.cut.get(reason, 0) + 1
            for item in page.items:
                _count(self.items, item.name, 1, otherwise=OTHER)
            for word, number in page.rejected_by.items():
                _count(self.rejected, word, number, otherwise=f"{word.partition(':')[0]}::{OTHER}")


def _count(counted: dict[str, int], word: str, number: int, *, otherwise: str) -> None:
    """Count `number` by `word`, or if there are too many words by `otherwise`."""
    if word not in counted and len(counted) >= MOST_WORDS:
        word = otherwise
    counted[word] = counted.get(word, 0) + number


_FREED_AT_ONCE = 4 << 20
"""Bytes of memory that are freed before yielding to the event loop. Freeing 10 MB takes the kernel 0.7 ms or more, and a
group may have more than 64 MiB of bodies."""


async def release_memory(results: list[Result]) -> None:
    """Drop `results`, and yield to the event loop between large bodies."""
    freed = 0
    while results:
        freed += results.pop().memory_bytes
        if freed > _FREED_AT_ONCE:
            freed = 0
            await asyncio.sleep(0)
