"""Known pages are visited again: queued when they are due, leased with the state of their visits, and never lost."""

from __future__ import annotations

import pytest

from frontier.counters import Counters
from frontier.entries import Entry
from frontier.known_pages import BUCKETS_AT_ONCE, refresh_domain, refresh_due_by, refresh_page, refresh_pages
from frontier.lookup import UrlLookup
from frontier.queue import Frontier, FrontierSettings
from frontier.settle import Lease, LeasedUrl, SettledUrl, Settlement, retry, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, ask, entry, lease_one, make_frontier

LATER_MS = 60_000
SETTINGS = FrontierSettings(known_share=0.5, batch=4, delay_ms=0)


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time, SETTINGS)


@pytest.fixture
def counters(store: RedisStore, frontier: Frontier) -> Counters:
    return Counters(store, frontier.keys)


def page(number: int, **more: object) -> Entry:
    return entry(f"https://a.test/{number}", **more)


def planned(lease: Lease, due_ms: int | None, found: str = "new", state: str = "a1") -> Settlement:
    """All URLs of `lease` are done, and visited again at `due_ms`."""
    urls = [with_next_visit(SettledUrl(one, "done", "200"), found, due_ms, state) for one in lease.entries]
    return Settlement(lease, 0, urls=urls)


def settled_for_good(lease: Lease) -> Settlement:
    """All URLs of `lease` are done, and not visited again."""
    return Settlement(lease, 0, urls=[SettledUrl(one, "done", "404") for one in lease.entries])


async def know(frontier: Frontier, time: ManualTime, *pages: Entry) -> int:
    """Make `pages` known, and return when they are due."""
    await frontier.push(pages)
    due_ms, left = time.ms + LATER_MS, len(pages)
    while left:
        lease = await lease_one(frontier)
        await frontier.settle([planned(lease, due_ms)])
        left -= len(lease.entries)
    return due_ms


async def leases_now(frontier: Frontier, replica: str = "r1") -> tuple[list[Lease], int | None]:
    (reply,), _ = await frontier.lease([0], 1, replica, 8)
    return list(reply.leases), reply.next_ms or reply.visit_ms


async def test_a_visit_that_is_not_due_is_not_open(frontier: Frontier, counters: Counters, time: ManualTime) -> None:
    due_ms = await know(frontier, time, page(1))
    assert await counters.has_ended()
    assert (await counters.counts()).known == 1
    assert await leases_now(frontier) == ([], due_ms)


async def test_a_due_visit_is_leased_with_its_state_and_is_open(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    time.ms = await know(frontier, time, page(1, priority=-2.0, via="https://a.test/"))
    lease = await lease_one(frontier)
    (again,) = lease.entries
    assert (again.url, again.via, again.visit) == ("https://a.test/1", "https://a.test/", "a1")
    counts = await counters.counts()
    assert (counts.open, counts.accepted, counts.later_visits, counts.known) == (1, 2, 1, 0)
    await frontier.settle([planned(lease, time.ms + LATER_MS, "changed", "a2")])
    counts = await counters.counts()
    assert (counts.open, counts.done, counts.known, counts.visits) == (0, 2, 1, {"new": 1, "changed": 1})
    time.ms += LATER_MS
    assert [one.visit for one in (await lease_one(frontier)).entries] == ["a2"]


async def test_a_doubled_settle_call_plans_one_visit(frontier: Frontier, counters: Counters, time: ManualTime) -> None:
    await frontier.push([page(1), page(2)])
    lease = await lease_one(frontier)
    for _ in range(2):
        await frontier.settle([planned(lease, time.ms + LATER_MS)])
    assert (await counters.counts()).visits == {"new": 2}
    assert (await counters.counts()).known == 2


async def test_a_page_that_is_not_visited_again_is_only_counted(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    time.ms = await know(frontier, time, page(1))
    await frontier.settle([planned(await lease_one(frontier), None, "gone")])
    counts = await counters.counts()
    assert (counts.known, counts.visits["gone"], counts.open) == (0, 1, 0)
    assert await leases_now(frontier) == ([], None)


async def test_known_and_new_pages_share_a_lease(frontier: Frontier, time: ManualTime) -> None:
    time.ms = await know(frontier, time, *map(page, range(8)))
    await frontier.push([page(number) for number in range(100, 108)])
    kinds = []
    for _ in range(4):
        lease = await lease_one(frontier)
        kinds.append(sorted(bool(one.visit) for one in lease.entries))
        await frontier.settle([planned(lease, None, "unchanged")])
    assert kinds == [[False, False, True, True]] * 4


async def test_a_kind_that_is_alone_gets_the_whole_lease(frontier: Frontier, time: ManualTime) -> None:
    time.ms = await know(frontier, time, *map(page, range(8)))
    assert len((await lease_one(frontier)).entries) == SETTINGS.batch


@pytest.mark.parametrize(("share", "expected"), [(0.0, 0), (0.25, 1), (1.0, 4)])
async def test_the_share_is_that_of_the_settings(
    frontier: Frontier, time: ManualTime, share: float, expected: int
) -> None:
    time.ms = await know(frontier, time, *map(page, range(8)))
    await frontier.push([page(number) for number in range(100, 108)])
    frontier.settings = FrontierSettings(known_share=share, batch=4, delay_ms=0)
    assert sum(bool(one.visit) for one in (await lease_one(frontier)).entries) == expected


@pytest.mark.parametrize("again_ms", [None, LATER_MS])
async def test_all_due_visits_are_leased_before_the_crawl_ends(
    frontier: Frontier, counters: Counters, time: ManualTime, again_ms: int | None
) -> None:
    """A queue takes 256 of them at a time. `again_ms`: after this time, each is visited once more."""
    frontier.settings = FrontierSettings(known_share=0.5, batch=100, delay_ms=0)
    time.ms = await know(frontier, time, *map(page, range(600)))
    visited = 0
    while not await counters.has_ended(frontier.visits_by_ms):
        leases, _ = await leases_now(frontier)
        assert leases
        for lease in leases:
            visited += len(lease.entries)
            await frontier.settle([planned(lease, again_ms and time.ms + again_ms, "unchanged")])
    assert visited == 600


async def test_a_crawl_ends_before_a_visit_is_due_and_not_after(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    """Nobody has to look for visits before. A crawl without rules does not make them, and ends."""
    due_ms = await know(frontier, time, page(1))
    for time.ms in (due_ms - 1, due_ms):
        assert await counters.has_ended(frontier.visits_by_ms) == (time.ms < due_ms)
        assert await frontier.shards_with_work([0]) == ({0} if time.ms == due_ms else set())
    frontier.settings = FrontierSettings(batch=4, delay_ms=0)
    assert await counters.has_ended(frontier.visits_by_ms)
    assert await frontier.shards_with_work([0]) == set()


async def test_a_lost_lease_returns_visits_with_their_state(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    time.ms = await know(frontier, time, page(1))
    lost = await lease_one(frontier)
    time.ms += SETTINGS.lease_ms + 1_000
    (again,) = (await lease_one(frontier)).entries
    assert (again.visit, again.taken_back) == ("a1", 1)
    (stale,) = await frontier.settle([planned(lost, time.ms + LATER_MS, "changed", "1a7e")])
    assert stale.stale
    url = LeasedUrl(0, "a.test", lost.token, lost.entries[0])
    assert await frontier.revoke([url]) == [True]
    counts = await counters.counts()
    assert (counts.open, counts.known) == (1, 0)


async def test_a_retry_keeps_the_state(frontier: Frontier, time: ManualTime) -> None:
    time.ms = await know(frontier, time, page(1))
    lease = await lease_one(frontier)
    (one,) = lease.entries
    await frontier.settle([Settlement(lease, 0, urls=[retry(one, "timeout", time.ms + 5, one.priority - 1)])])
    time.ms += 5
    (again,) = (await lease_one(frontier)).entries
    assert (again.visit, again.tries) == ("a1", 1)


async def test_a_shard_is_asked_again_when_the_first_visit_or_retry_is_due(
    frontier: Frontier, time: ManualTime
) -> None:
    due_ms = await know(frontier, time, page(1))
    await frontier.push([page(2)])
    lease = await lease_one(frontier)
    (one,) = lease.entries
    await frontier.settle([Settlement(lease, 0, urls=[retry(one, "timeout", due_ms + 5, 0.0)])])
    assert await leases_now(frontier) == ([], due_ms)


async def test_a_known_page_that_is_seeded_again_is_due_now(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    await know(frontier, time, page(1))
    await frontier.push([page(1, mode="again")])
    lease = await lease_one(frontier)
    assert [one.visit for one in lease.entries] == ["a1"]
    counts = await counters.counts()
    assert (counts.known, counts.open) == (0, 1)
    await frontier.settle([planned(lease, None, "unchanged")])
    assert await counters.has_ended()


async def test_a_first_visit_does_not_replace_what_is_known(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    """It is settled late: the page was seeded again while it was leased."""
    time.ms = await know(frontier, time, page(1))
    known = await lease_one(frontier)
    await frontier.push([page(1, mode="again", depth=3)])
    await frontier.settle([planned(known, time.ms + LATER_MS, "changed", "a2")])
    await frontier.settle([planned(await lease_one(frontier), time.ms + 5, "new", "f1")])
    assert (await counters.counts()).known == 1
    time.ms += LATER_MS
    assert [one.visit for one in (await lease_one(frontier)).entries] == ["a2"]


async def test_where_a_page_has_moved_is_visited_although_it_was_seen(
    frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    """And only once, although each page that has moved there says so. That it was full before does not matter."""
    await frontier.push([page(1)])
    await frontier.settle([settled_for_good(await lease_one(frontier))])
    frontier.settings = FrontierSettings(known_share=0.5, batch=4, delay_ms=0, domain_cap=1)
    assert (await frontier.push([page(1), page(2, mode="moved")])).accepted == 0
    for depth in (3, 4):
        moved = await frontier.push([page(1, mode="moved", depth=depth)])
        assert (moved.accepted, moved.seen) == (4 - depth, depth - 3)
    lease = await lease_one(frontier)
    assert [(one.url, one.depth, one.visit) for one in lease.entries] == [("https://a.test/1", 3, "")]
    assert (await frontier.push([page(1, mode="moved", depth=4)])).accepted == 0
    await frontier.settle([planned(lease, time.ms + LATER_MS)])
    counts = await counters.counts()
    assert (counts.open, counts.accepted, counts.seen, counts.known) == (0, 2, 1, 1)


async def test_a_known_page_where_another_has_moved_is_visited_when_it_is_due(
    frontier: Frontier, time: ManualTime
) -> None:
    due_ms = await know(frontier, time, page(1), page(2))
    moved = [page(1, mode="moved", depth=1), page(2, mode="moved", depth=1)]
    assert (await frontier.push(moved)).accepted == 0
    time.ms = due_ms
    assert (await leases_now(frontier))[0][0].entries != ()
    assert (await frontier.push(moved)).accepted == 0


async def test_an_unseen_url_where_a_page_has_moved_is_new(frontier: Frontier, counters: Counters) -> None:
    assert (await frontier.push([page(1, mode="moved"), page(1, mode="moved", depth=2)])).accepted == 1
    counts = await counters.counts()
    assert (counts.open, counts.seen, counts.domains) == (1, 1, 1)


async def test_a_server_that_lost_the_lease_of_a_visit_accepts_its_result(
    frontier: Frontier, counters: Counters, store: RedisStore, time: ManualTime
) -> None:
    """The server is set back to before the visit was woken and leased, and tells so by its run."""
    time.ms = await know(frontier, time, page(1))
    keys = frontier.keys.shards[0]
    names = (keys.revisits, keys.known("a.test"), keys.stats, keys.owner, keys.domain("a.test"))
    before = [await ask(store, "DUMP", name) for name in names]
    lease = await lease_one(frontier)
    for name, dump in zip(names, before, strict=True):
        await ask(store, "RESTORE", name, 0, dump, "REPLACE")
    await ask(store, "DEL", keys.inflight("a.test"), keys.leases, keys.due)
    await ask(store, "HSET", keys.owner, "run", "former")
    await frontier.settle([planned(lease, time.ms + LATER_MS, "changed", "a2")])
    counts = await counters.counts()
    assert (counts.open, counts.known, counts.visits) == (0, 1, {"new": 1, "changed": 1})


async def test_a_crawl_without_recrawl_has_none_of_its_keys(
    store: RedisStore, crawl_name: str, time: ManualTime
) -> None:
    frontier = await make_frontier(store, crawl_name, time, FrontierSettings(batch=4, delay_ms=0))
    await frontier.push([page(1), page(2)])
    lease = await lease_one(frontier)
    await frontier.settle([Settlement(lease, 0, urls=[SettledUrl(one, "done", "200") for one in lease.entries])])
    shard = frontier.keys.shards[0]
    found = {key.decode().removeprefix(shard.base) for key in await ask(store, "KEYS", f"{shard.base}*")}
    assert found == {"owner", "stats", "d:a.test", "seen:0"}
    fields = set((await ask(store, "HGETALL", shard.stats))[::2])
    assert not {name for name in fields if name.startswith((b"visit", b"known", b"revisit"))}


async def test_a_refreshed_page_is_due_now(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    await know(frontier, time, page(1), page(2))
    wanted = ("https://a.test/2", "a.test", time.ms)
    assert [await refresh_page(store, frontier.keys, *wanted) for _ in range(2)] == [1, 0]
    assert await refresh_page(store, frontier.keys, "https://a.test/3", "a.test", time.ms) == 0
    assert [one.url for one in (await lease_one(frontier)).entries] == ["https://a.test/2"]
    assert await refresh_page(store, frontier.keys, *wanted) == 0  # it is being visited


async def test_a_refreshed_page_comes_before_visits_that_are_due_later(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    """Given a page that was planned for the next month and refreshed, and others that are due by now, and a new one."""
    frontier.settings = FrontierSettings(known_share=0.5, batch=1, delay_ms=0)
    plans_ms = [time.ms + 3_600_000 * hours for hours in (1, 2, 24 * 30)]
    for number, due_ms in enumerate(plans_ms):
        await frontier.push([page(number, priority=-(due_ms / 1000 // 60))])
        await frontier.settle([planned(await lease_one(frontier), due_ms)])
    assert await refresh_page(store, frontier.keys, page(2).url, "a.test", time.ms) == 1
    time.ms = plans_ms[1]
    await frontier.push([page(3)])
    order = []
    for _ in range(4):
        lease = await lease_one(frontier)
        order += [int(one.url[-1]) for one in lease.entries]
        await frontier.settle([settled_for_good(lease)])
    assert [number for number in order if number < 3] == [2, 0, 1] and 3 in order


async def test_named_pages_are_refreshed_up_to_a_number(
    store: RedisStore, frontier: Frontier, time: ManualTime
) -> None:
    await know(frontier, time, *map(page, range(4)))
    wanted = [page(number).url for number in (9, 3, 2, 1)]
    assert await refresh_pages(store, frontier.keys, wanted, "a.test", time.ms, most=2) == wanted[1:3]
    assert await refresh_pages(store, frontier.keys, wanted, "a.test", time.ms) == wanted[3:]
    assert await refresh_pages(store, frontier.keys, wanted, "b.test", time.ms) == []


async def test_all_pages_of_a_domain_are_refreshed(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    frontier.settings = FrontierSettings(known_share=0.5, batch=500, delay_ms=0)
    await know(frontier, time, *map(page, range(3_200)))
    assert await ask(store, "HLEN", frontier.keys.shards[0].known("a.test")) > BUCKETS_AT_ONCE
    assert await refresh_domain(store, frontier.keys, "a.test", time.ms) == 3_200
    assert await refresh_domain(store, frontier.keys, "a.test", time.ms) == 0
    assert await refresh_domain(store, frontier.keys, "b.test", time.ms) == 0
    assert await ask(store, "ZRANGE", frontier.keys.shards[0].revisits, 0, -1) == [b"a.test"]
    leases, _ = await leases_now(frontier)
    assert [lease.domain for lease in leases] == ["a.test"]


async def test_a_known_page_is_looked_up(store: RedisStore, frontier: Frontier, time: ManualTime) -> None:
    due_ms = await know(frontier, time, page(1, depth=2))
    found = await UrlLookup(store, frontier).url("https://a.test/1", "a.test")
    assert found.entry is not None
    assert (found.where, found.next_ms, found.entry.visit, found.entry.depth) == ("settled", due_ms, "a1", 2)
    time.ms = due_ms
    lease = await lease_one(frontier)
    found = await UrlLookup(store, frontier).url("https://a.test/1", "a.test")
    assert (found.where, found.entry) == ("leased", lease.entries[0])


async def test_only_pages_that_are_due_by_a_time_are_made_due(
    store: RedisStore, frontier: Frontier, counters: Counters, time: ManualTime
) -> None:
    """Of many buckets, of a domain that has been due since before, and of one that is due too late."""
    assert await counters.next_visit_ms() == 0
    soon_ms = await know(frontier, time, *(page(number) for number in range(200)))
    time.ms += LATER_MS // 2
    late_ms = await know(frontier, time, *(page(number) for number in range(200, 300)), entry("https://b.test/"))
    assert await counters.next_visit_ms() // 1000 == soon_ms // 1000
    keys = frontier.keys
    assert await refresh_due_by(store, keys, soon_ms / 1000 - 2, time.ms) == 0
    assert await refresh_due_by(store, keys, soon_ms / 1000 + 2, time.ms) == 200
    assert await counters.next_visit_ms() <= time.ms
    assert await refresh_due_by(store, keys, soon_ms / 1000 + 2, time.ms) == 0
    assert await refresh_due_by(store, keys, late_ms / 1000 + 2, time.ms) == 101
