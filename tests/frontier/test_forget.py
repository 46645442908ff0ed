"""A domain that is forgotten leaves no trace in Redis, and does not come back; the crawl can still end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from frontier.clock import SystemClock
from frontier.control import Control, DomainRules
from frontier.counters import Counters
from frontier.crawls import Crawl, crawl_clock, create_crawl, open_crawl
from frontier.domains import forgotten_mark, is_of, shard_of
from frontier.entries import Entry, parse_entry
from frontier.errors import RedisAway, StillAdded
from frontier.forget import Forgetting, forget_again
from frontier.keys import shard_keys
from frontier.packing import rows_of
from frontier.queue import Frontier, FrontierSettings
from frontier.repair import Repair
from frontier.reservations import Reservations
from frontier.reshard import Reshard
from frontier.scripts import FORGET_DOMAIN, Call, Reply, command
from frontier.settle import Lease, SettledUrl, Settlement, retry, with_next_visit
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ask, lease_one, reshard_crawl

GONE, OTHER, THIRD = "gone.test", "a.test", "b.test"
SHARDS = 4
SETTINGS = FrontierSettings(batch=4, delay_ms=1, pack_above=16)


def url(number: int, domain: str = GONE) -> str:
    return f"https://{domain}/page-{number}"


def entries(domain: str, count: int, **more: object) -> list[Entry]:
    return [Entry(url(number, domain), domain, priority=-number / 2, depth=1, **more) for number in range(count)]  # type: ignore[arg-type]


async def contents(store: RedisStore, crawl: str) -> AsyncIterator[bytes]:
    """Every key of `crawl`, and every byte of its value, blocks unpacked."""
    for key in await ask(store, "KEYS", f"{{{crawl}*"):
        yield key
        kind = await ask(store, "TYPE", key)
        match kind:
            case b"string":
                value = await ask(store, "GET", key)
                yield value
                if b":block:" in key:
                    for _, entry in rows_of(value):
                        yield entry
            case b"hash":
                flat = await ask(store, "HGETALL", key)
                for item in flat.items() if isinstance(flat, dict) else [flat]:
                    for word in item:
                        yield word
            case b"zset":
                for word in await ask(store, "ZRANGE", key, 0, -1):
                    yield word
            case b"set":
                for word in await ask(store, "SMEMBERS", key):
                    yield word
            case other:
                raise AssertionError(other)


async def traces(store: RedisStore, crawl: str) -> list[bytes]:
    return [word async for word in contents(store, crawl) if b"gone" in word]


@pytest.fixture
async def crawl(store: RedisStore, crawl_name: str) -> Crawl:
    return await create_crawl(store, crawl_name, SHARDS, b"{}")


async def frontier_of(store: RedisStore, crawl: Crawl) -> Frontier:
    return Frontier(store, crawl.keys, await crawl_clock(store, crawl), SETTINGS, crawl.fingerprint_key)


async def fill(store: RedisStore, crawl: Crawl) -> Frontier:
    """A crawl that knows the domain in every place where a domain can be."""
    frontier = await frontier_of(store, crawl)
    keys, shard = crawl.keys, crawl.keys.shards[shard_of(GONE, SHARDS)]
    await frontier.push(entries(GONE, 60, via=url(0)))
    await frontier.push([Entry("https://www.sub.gone.test/", GONE)])
    await frontier.push(entries(OTHER, 40, via="https://www.gone.test/links?page=1") + entries(THIRD, 3))
    # One URL is retried, one is dead, one was denied by the operator's own settings, and one is leased.
    lease = await lease_of(frontier, GONE)
    now_ms = (await crawl_clock(store, crawl)).now_ms()
    first, second, third, _ = lease.entries
    await frontier.settle(
        [
            Settlement(
                lease,
                now_ms,
                urls=[
                    retry(first, "timeout", now_ms + 10**7, -1.0),
                    SettledUrl(second, "dead", "timeout"),
                    with_next_visit(SettledUrl(third, "done", "ok"), "new", now_ms + 10**7, "57a7e0"),
                ],
            )
        ]
    )
    # A page of another domain is known, which was found on it.
    other = await lease_of(frontier, OTHER)
    known = with_next_visit(SettledUrl(other.entries[0], "done", "ok"), "new", now_ms + 10**7, "57a7e0")
    await frontier.settle([Settlement(other, now_ms, urls=[known])])
    await frontier.release([Settlement(other, now_ms)])
    # Another was taken back from a holder that was lost.
    await store.send([command("ZADD", shard.lost, now_ms, f"{lease.token}\n{third.raw}")])
    await store.send([command("HSET", shard.robots(GONE), "https://gone.test", "record")])
    # Links to it wait in outboxes of other domains, and links of others that were found on it.
    page = shard_of(OTHER, SHARDS)
    links = [(shard_of(GONE, SHARDS), Entry(url(99), GONE)), (0, Entry(url(1, THIRD), THIRD, via=url(3)))]
    await frontier.outboxes.keep({page: links})
    control = Control(store, keys)
    await control.block(GONE)
    await control.set_delay(GONE, 3.0)
    await store.send([command("SET", keys.summary, f'{{"busiest":["{GONE}"]}}')])
    return frontier


async def lease_of(frontier: Frontier, domain: str) -> Lease:
    shard = frontier.shard_of(domain)
    for _ in range(3):
        lease = await lease_one(frontier, shard=shard)
        if lease.domain == domain:
            return lease
    raise AssertionError(domain)


async def forget(store: RedisStore, crawl: Crawl, is_dry: bool = False) -> Forgetting:
    forgetting = Forgetting(store, crawl, await frontier_of(store, crawl), GONE, is_dry)
    await forgetting.purge(durable_s=0.0)
    await forgetting.forget_seen([url(number) for number in range(100)])
    return forgetting


async def test_no_fingerprint_of_a_label_stays(store: RedisStore, crawl: Crawl) -> None:
    await (await frontier_of(store, crawl)).push(entries(GONE, 9, tag="label"))
    assert (await forget(store, crawl)).removed.seen == 18
    assert (await Counters(store, crawl.keys).counts()).seen == 0


async def test_no_key_and_no_value_names_it_and_the_others_stay(store: RedisStore, crawl: Crawl) -> None:
    frontier = await fill(store, crawl)
    counters = Counters(store, crawl.keys)
    before = await counters.counts()
    assert len(await traces(store, crawl.name)) > 80
    # When it is forgotten,
    removed = (await forget(store, crawl)).removed
    # Then nothing names it,
    assert await traces(store, crawl.name) == []
    assert (removed.waiting, removed.leased, removed.dead, removed.outbox, removed.lost) == (1, 1, 1, 1, 1)
    assert (removed.queued, removed.known) == (57, 1)
    assert removed.found_on == 41
    assert removed.leases == 1
    # not even a fingerprint,
    shard = crawl.keys.shards[shard_of(GONE, SHARDS)]
    prints = {int(one) async for one in members(store, await ask(store, "KEYS", f"{shard.base}seen:*"))}
    assert not prints & {frontier.fingerprint(url(number)) for number in range(100)}
    # and all other URLs are there.
    after = await counters.counts()
    assert after.accepted == before.accepted
    assert after.open == 39 + 3 + 0
    assert (before.known, after.known) == (2, 1)
    other = crawl.keys.shards[shard_of(OTHER, SHARDS)]
    (value,) = await ask(store, "HVALS", other.known(OTHER))
    assert value.endswith(b"/page-0 0100 \x57\xa7\xe0")
    assert after.reasons["denied:forgotten"] == 59
    assert after.seen == before.seen - removed.seen
    assert len({word async for word in contents(store, crawl.name) if b"/page-" in word}) >= 43
    assert forgotten_mark(GONE) in (await rules(store, crawl)).forgotten


async def members(store: RedisStore, keys: Sequence[bytes]) -> AsyncIterator[bytes]:
    for key in keys:
        for member in await ask(store, "SMEMBERS", key):
            yield member


async def rules(store: RedisStore, crawl: Crawl) -> DomainRules:
    control = Control(store, crawl.keys)
    await control.refresh()
    return control.rules


async def test_it_does_not_come_back_whoever_brings_it(store: RedisStore, crawl: Crawl) -> None:
    frontier = await fill(store, crawl)
    held = await stale_lease(store, crawl, frontier)
    await forget(store, crawl)
    counts = await Counters(store, crawl.keys).counts()
    # A link, a seed, one that is queued again, and one that waited in an outbox are dropped, and counted.
    for mode in ("new", "known", "again"):
        pushed = await frontier.push([Entry(url(1), GONE, mode=mode)])  # type: ignore[arg-type]
        assert (pushed.accepted, pushed.seen, pushed.outside) == (0, 0, 1)
    assert (await Counters(store, crawl.keys).counts()).dropped["forgotten"] == 2  # "known" is dropped before
    # Whoever held a lease on it is refused, and leaves nothing behind.
    now_ms = (await crawl_clock(store, crawl)).now_ms()
    told = Settlement(held, now_ms, 5_000, "1 2 3 timeout", urls=[SettledUrl(held.entries[0], "done", "ok")])
    (reply,) = await frontier.settle([told])
    assert reply.stale
    await frontier.release([told])
    assert await traces(store, crawl.name) == []
    assert (await Counters(store, crawl.keys).counts()).settled == counts.settled


async def stale_lease(store: RedisStore, crawl: Crawl, frontier: Frontier) -> Lease:
    """The lease that `fill` has left, in the tail that a restarted server may have lost."""
    shard = crawl.keys.shards[frontier.shard_of(GONE)]
    token = int(await ask(store, "HGET", shard.domain(GONE), "token"))
    (raw,) = await ask(store, "ZRANGE", shard.inflight(GONE), 0, -1)
    await store.send([command("HSET", shard.owner, "tails", f"{token - 1}-{token + 1}")])
    return Lease(GONE, frontier.shard_of(GONE), token, 0, 1, "", (parse_entry(raw.decode(), GONE, 0.0),))


class Dies(CountingStore):
    """A store whose caller is killed before its n-th round trip, or after it."""

    def __init__(self, store: RedisStore, calls: int, is_after: bool) -> None:
        super().__init__(store)
        self._left, self._is_after = calls, is_after

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self._left -= 1
        if self._left < 0 and not self._is_after:
            raise RedisAway("killed")
        replies = await super().send(calls)
        if self._left < 0:
            raise RedisAway("killed")
        return replies


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_command_killed_at_any_moment_is_repeated(store: RedisStore, is_after: bool) -> None:
    """Each time the crawl is the same, and the command dies one round trip later."""
    died, step = True, 0
    while died:
        await store.send([command("FLUSHDB")])  # the keys of other tests would take hundreds of round trips to scan
        crawl = await create_crawl(store, f"killed-{is_after:d}-{step}", SHARDS, b"{}")
        await fill(store, crawl)
        dying = Dies(store, step, is_after)
        try:
            forgetting = Forgetting(dying, crawl, await frontier_of(store, crawl), GONE)
            await forgetting.purge(durable_s=0.0)
            died = False
        except RedisAway:
            step += 3
        await forget(store, crawl)
        assert await traces(store, crawl.name) == [], step
        counts = await Counters(store, crawl.keys).counts()
        assert (counts.open, counts.reasons["denied:forgotten"]) == (42, 59), step
    assert step > 20


class Adds(CountingStore):
    """A store in which somebody queues a URL of the domain in each round, without regard to what was forgotten."""

    def __init__(self, store: RedisStore, key: str) -> None:
        super().__init__(store)
        self._key = key

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if calls[0].script is FORGET_DOMAIN:
            await super().send([command("ZADD", self._key, 1, Entry(url(1), GONE).raw)])
        return await super().send(calls)


async def test_a_command_that_never_gets_done_says_so(store: RedisStore, crawl: Crawl) -> None:
    await fill(store, crawl)
    adding = Adds(store, crawl.keys.shards[shard_of(GONE, SHARDS)].queue(GONE))
    with pytest.raises(StillAdded, match="something adds URLs"):
        await Forgetting(adding, crawl, await frontier_of(store, crawl), GONE).purge(durable_s=0.0)
    await forget(store, crawl)
    assert await traces(store, crawl.name) == []


async def test_a_dry_run_counts_the_same_and_changes_nothing(store: RedisStore, crawl: Crawl) -> None:
    await fill(store, crawl)
    before = sorted([word async for word in contents(store, crawl.name)])
    counted = (await forget(store, crawl, is_dry=True)).removed
    assert sorted([word async for word in contents(store, crawl.name)]) == before
    removed = (await forget(store, crawl)).removed
    assert counted == removed


async def test_the_crawl_ends_when_the_others_are_settled(store: RedisStore, crawl: Crawl) -> None:
    frontier = await frontier_of(store, crawl)
    await frontier.push(entries(GONE, 40))
    assert not await Counters(store, crawl.keys).has_ended()
    await forget(store, crawl)
    assert await Counters(store, crawl.keys).has_ended()


async def test_a_repaired_shard_refuses_it_too(store: RedisStore, crawl: Crawl) -> None:
    """Given a shard that lost its data after the domain was forgotten, and is restored from archives that link to it."""
    frontier = await frontier_of(store, crawl)
    await forget(store, crawl)
    marks = (await rules(store, crawl)).forgotten
    shard = crawl.keys.shards[frontier.shard_of(GONE)]
    await store.send([command("DEL", *await ask(store, "KEYS", f"{shard.base}*"))])
    repair = Repair(store, crawl, await crawl_clock(store, crawl), 0)
    assert list(await repair.begin(marks)) == [frontier.shard_of(GONE)]
    assert await repair.push(entries(GONE, 2)) == 0
    await repair.finish()
    assert (await frontier.push(entries(GONE, 2))).outside == 2
    assert await traces(store, crawl.name) == []


async def test_what_a_snapshot_has_brought_back_is_forgotten_again(store: RedisStore, crawl: Crawl) -> None:
    """Only its mark is known, from an output folder."""
    frontier = await fill(store, crawl)
    marks = {forgotten_mark(name): "2026-11-28T17:54:36Z" for name in (GONE, "unseen.test")}
    assert await forget_again(store, crawl, frontier, marks) == 2
    assert await traces(store, crawl.name) == []
    assert (await rules(store, crawl)).forgotten == marks.keys()
    assert not (await rules(store, crawl)).half_forgotten
    assert (await frontier.push([*entries(GONE, 2), Entry("https://unseen.test/", "unseen.test")])).outside == 3
    assert await forget_again(store, crawl, frontier, marks) == 0


async def test_after_a_reshard_it_is_still_refused(store: RedisStore, crawl: Crawl) -> None:
    frontier = await frontier_of(store, crawl)
    await frontier.push(entries(OTHER, 5) + entries(GONE, 5))
    await forget(store, crawl)
    clock = await crawl_clock(store, crawl)
    await reshard_crawl(Reshard(store, crawl, (SystemClock(), clock), 2 * SHARDS, 1), crawl, lambda *_: None)
    after = await open_crawl(store, crawl.name)
    assert after.shards == 2 * SHARDS
    pushed = await (await frontier_of(store, after)).push(entries(GONE, 2) + entries(OTHER, 6))
    assert (pushed.outside, pushed.accepted) == (2, 1)
    assert await traces(store, crawl.name) == []


async def test_a_reservation_does_not_count_as_a_record_twice(store: RedisStore, crawl: Crawl) -> None:
    """A robots.txt of another domain redirected to it; the domain itself was never queued."""
    clock = await crawl_clock(store, crawl)
    await Reservations(store, crawl.keys, clock, hold_ms=300, delay_ms=100).reserve(GONE, 0)
    assert (await forget(store, crawl)).removed.records == 1
    assert await traces(store, crawl.name) == []


async def test_former_layouts_keep_nothing_either(store: RedisStore, crawl: Crawl) -> None:
    """After a reshard, the old shards still tell for three days what was settled under old leases."""
    frontier = await frontier_of(store, crawl)
    await frontier.push(entries(GONE, 3))
    later = crawl.keys_of((10**15,), SHARDS)
    moved = shard_keys(crawl.name, 3)
    whole = Entry("https://sub.gone.test/x", GONE)
    await store.send(
        [
            command("ZADD", moved.lost, 1, f"77\n{whole.raw}", 2, f"77\n{Entry('https://b.test/', THIRD).raw}"),
            command("HSET", moved.stats, "crawl", f"{crawl.keys.identity}:moved"),
            *(command("HSET", of.stats, "crawl", later.identity) for of in later.shards),
        ]
    )
    now = Frontier(store, later, await crawl_clock(store, crawl), SETTINGS, crawl.fingerprint_key)
    await now.push([*entries(GONE, 3), whole])
    assert crawl.last_tokens == ()
    resharded = Crawl(
        crawl.name, SHARDS, crawl.fingerprint_key, crawl.settings, crawl.revision, last_tokens=(10**15,), created=False
    )
    forgetting = Forgetting(store, resharded, now, GONE)
    await forgetting.purge(durable_s=0.0)
    assert forgetting.removed.lost == 1
    assert await ask(store, "ZCARD", moved.lost) == 1
    assert not [word async for word in members_of(store, later.shards[now.shard_of(GONE)].base) if b"gone" in word]


async def members_of(store: RedisStore, base: str) -> AsyncIterator[bytes]:
    for key in await ask(store, "KEYS", f"{base}*"):
        yield key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://gone.test/", True),
        ("http://www.gone.test:8080/x?y", True),
        ("https://gone.test?x", True),
        ("https://a.test/?u=https://gone.test/", False),
        ("https://notgone.test/", False),
        ("https://gone.test.evil.test/", False),
        ("gone.test", False),
        ("", False),
    ],
)
def test_a_url_is_of_a_domain_by_its_host_alone(text: str, expected: bool) -> None:
    assert is_of(text, GONE) is expected
