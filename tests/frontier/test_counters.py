"""The counters of all shards show the end of a crawl, whichever shard is emptied last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from frontier.counters import Counters
from frontier.queue import Frontier
from frontier.scripts import Call, Reply
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ManualTime, entry, lease_one, make_frontier, settle_all

DOMAINS = ("a.test", "b.test", "c.test")


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    frontier = await make_frontier(store, crawl_name, time, shards=64)
    assert len({frontier.shard_of(domain) for domain in DOMAINS}) == 3
    return frontier


class Interrupted(CountingStore):
    """Sends one call at a time, and runs `meanwhile` once after call number `after`."""

    def __init__(self, store: RedisStore, after: int, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._after = after
        self._meanwhile = meanwhile

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        replies: list[Reply] = []
        for call in calls:
            replies += await super().send([call])
            if self.calls.total() == self._after:
                await self._meanwhile()
        return replies


async def settle(frontier: Frontier, domain: str) -> None:
    await frontier.settle([settle_all(await lease_one(frontier, shard=frontier.shard_of(domain)))])


@pytest.mark.parametrize("order", [DOMAINS, DOMAINS[::-1], ("b.test", "a.test", "c.test")])
async def test_a_crawl_ends_with_the_last_of_its_shards(
    store: RedisStore, frontier: Frontier, order: tuple[str, ...]
) -> None:
    counters = Counters(store, frontier.keys)
    assert await counters.has_ended()
    await frontier.push([entry(f"https://{domain}/", domain) for domain in DOMAINS])
    for domain in order:
        assert not await counters.has_ended()
        await settle(frontier, domain)
    assert await counters.has_ended()


async def test_while_a_shard_is_known_to_be_open_no_other_is_asked(store: RedisStore, frontier: Frontier) -> None:
    counting = CountingStore(store)
    counters = Counters(counting, frontier.keys)
    await frontier.push([entry("https://a.test/", "a.test")])
    assert not await counters.has_ended()
    asked = counting.calls.total()
    for more in (1, 2):
        assert not await counters.has_ended()
        assert counting.calls.total() == asked + more


async def test_when_that_shard_is_empty_the_search_goes_on_after_it(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    """So replicas that wait near the end of a crawl read each shard about once, and in its middle only a few."""
    frontier = await make_frontier(store, crawl_name, time, shards=512)
    by_shard = {frontier.shard_of(f"{number}.test"): f"{number}.test" for number in range(4_000)}
    first, second = by_shard[300], by_shard[310]
    await frontier.push([entry(f"https://{domain}/", domain) for domain in (first, second)])
    counting = CountingStore(store)
    counters = Counters(counting, frontier.keys)
    assert not await counters.has_ended()
    counting.calls.clear()
    await settle(frontier, first)
    assert not await counters.has_ended()
    assert counting.calls.total() == 1 + 8 + 16
    await settle(frontier, second)
    assert await counters.has_ended()


async def test_a_page_that_is_settled_during_a_reading_does_not_hide_its_links(
    store: RedisStore, frontier: Frontier
) -> None:
    """Given one open URL, when its page is settled after the shard of its link was read and before its own is, then the
    crawl has not ended, although no shard had an open URL when it was read."""
    link, page = sorted(DOMAINS, key=frontier.shard_of)[:2]
    await frontier.push([entry(f"https://{page}/", page)])

    async def commit() -> None:
        await frontier.push([entry(f"https://{link}/", link)])
        await settle(frontier, page)

    interrupted = Interrupted(store, frontier.shard_of(link) + 1, commit)
    assert not await Counters(interrupted, frontier.keys).has_ended()
    assert interrupted.calls.total() == 2 * 64
