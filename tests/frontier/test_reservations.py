"""Reservations: a request without a lease never overlaps with a lease or with the domain's delay."""

from __future__ import annotations

import pytest

from frontier.control import Control
from frontier.queue import Frontier, FrontierSettings
from frontier.reservations import Reservation, ReservationRefused, Reservations
from frontier.scripts import command
from frontier.settle import SettledUrl, Settlement
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, entry, make_frontier

HOLD_MS = 30_000
PATIENCE_MS = 5_000
KEPT_MS = 3_600_000


@pytest.fixture
async def frontier(store: RedisStore, crawl_name: str, time: ManualTime) -> Frontier:
    return await make_frontier(store, crawl_name, time, FrontierSettings(lease_ms=10_000))


@pytest.fixture
def reservations(store: RedisStore, frontier: Frontier) -> Reservations:
    return Reservations(store, frontier.keys, frontier._clock, HOLD_MS, delay_ms=600)


async def reserve(reservations: Reservations) -> Reservation:
    answer = await reservations.reserve("a.test", PATIENCE_MS)
    assert isinstance(answer, Reservation)
    return answer


async def lease(frontier: Frontier) -> int:
    """Lease what is due. Returns the number of domains."""
    leased, _ = await frontier.lease([0], 1, "r1", 10)
    return len(leased[0].leases)


async def test_a_free_domain_is_reserved_at_once_and_not_leased_meanwhile(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    await frontier.push([entry()])
    held = await reserve(reservations)
    assert (held.slot_ms, held.until_ms) == (time.ms, time.ms + HOLD_MS)
    assert await lease(frontier) == 0
    await reservations.end(held, time.ms + 1_000)
    time.ms += 999
    assert await lease(frontier) == 0
    time.ms += 1
    assert await lease(frontier) == 1


async def test_a_leased_domain_is_not_reserved(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    await frontier.push([entry()])
    assert await lease(frontier) == 1
    assert await reservations.reserve("a.test", PATIENCE_MS) == ReservationRefused(time.ms + 300)
    time.ms += 60_000  # an expired lease counts, until its owner has taken it back with the rest that it owes
    assert isinstance(await reservations.reserve("a.test", PATIENCE_MS), ReservationRefused)


async def test_a_resting_domain_is_reserved_for_the_end_of_its_rest(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
    leased, _ = await frontier.lease([0], 1, "r1", 1)
    held = leased[0].leases[0]
    urls = [SettledUrl(one, "done", "ok") for one in held.entries]
    await frontier.settle([Settlement(held, time.ms + 3_000, delay_ms=2_000, urls=urls)])
    await frontier.push([entry("https://a.test/3")])
    answer = await reserve(reservations)
    assert (answer.slot_ms, answer.delay_ms) == (time.ms + 3_000, 2_000)
    time.ms += 3_000
    assert await lease(frontier) == 0


async def test_two_reservations_do_not_meet(reservations: Reservations, time: ManualTime) -> None:
    first = await reserve(reservations)
    assert await reservations.reserve("a.test", PATIENCE_MS) == ReservationRefused(time.ms + 300)
    await reservations.end(first, time.ms + 1_000)
    second = await reserve(reservations)
    assert second.slot_ms == time.ms + 1_000


async def test_urls_that_are_due_come_first_after_a_second_of_reservations(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    """Their owner has two seconds to lease them. If it does not, or has done so, reservations go on."""
    await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])

    async def reserve_for_a_second() -> None:
        for _ in range(2):
            held = await reserve(reservations)
            time.ms = held.slot_ms
            await reservations.end(held, time.ms + 600)
        assert await reservations.reserve("a.test", PATIENCE_MS) == ReservationRefused(time.ms + 2_600)

    await reserve_for_a_second()
    time.ms += 2_600
    await reserve_for_a_second()
    time.ms += 600
    leased, _ = await frontier.lease([0], 1, "r1", 10)
    assert isinstance(await reservations.reserve("a.test", PATIENCE_MS), ReservationRefused)
    await frontier.release([Settlement(leased[0].leases[0], time.ms + 700)])
    await reserve_for_a_second()


async def test_a_rest_that_comes_too_late_or_twice_changes_nothing(
    store: RedisStore, frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    held = await reserve(reservations)
    await reservations.end(held, time.ms + 1_000)
    other = await reserve(reservations)
    await reservations.end(held, time.ms)
    (until_ms,) = await store.send([command("HGET", frontier.keys.shards[0].domain("a.test"), "next")])
    assert int(until_ms) == other.until_ms


async def test_a_lost_holder_blocks_the_domain_for_a_while_only(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    await frontier.push([entry()])
    await reserve(reservations)
    time.ms += HOLD_MS
    assert await lease(frontier) == 1


async def test_a_request_that_must_end_soon_blocks_the_domain_no_longer(
    frontier: Frontier, reservations: Reservations, time: ManualTime
) -> None:
    await frontier.push([entry()])
    await reservations.reserve("a.test", PATIENCE_MS, hold_ms=2_000.0)
    time.ms += 2_000
    assert await lease(frontier) == 1


async def test_a_url_that_is_pushed_meanwhile_waits(frontier: Frontier, reservations: Reservations) -> None:
    await reserve(reservations)
    await frontier.push([entry()])
    assert await lease(frontier) == 0


class TestOfADomainThatIsNotOfTheCrawl:
    async def test_it_is_forgotten_some_time_after_its_delay(
        self, store: RedisStore, frontier: Frontier, reservations: Reservations, time: ManualTime
    ) -> None:
        """Otherwise the domains to which any robots.txt ever redirected would stay for good."""
        held = await reserve(reservations)
        key = frontier.keys.shards[0].domain("a.test")
        (kept_ms,) = await store.send([command("PTTL", key)])
        assert HOLD_MS < kept_ms <= HOLD_MS + KEPT_MS
        await reservations.end(held, time.ms + 2 * KEPT_MS)  # a very long delay
        (kept_ms,) = await store.send([command("PTTL", key)])
        assert kept_ms > 2 * KEPT_MS

    @pytest.mark.parametrize("is_pushed_first", [False, True])
    async def test_it_is_kept_once_a_url_of_it_is_accepted(
        self,
        store: RedisStore,
        frontier: Frontier,
        reservations: Reservations,
        time: ManualTime,
        is_pushed_first: bool,
    ) -> None:
        if is_pushed_first:
            await frontier.push([entry()])
        held = await reserve(reservations)
        await frontier.push([entry()])
        await reservations.end(held, time.ms + 1_000)
        assert await store.send([command("PTTL", frontier.keys.shards[0].domain("a.test"))]) == [-1]


class TestOfALeasedDomain:
    async def test_it_is_wanted_for_a_while_and_its_holder_reads_that(
        self, store: RedisStore, frontier: Frontier, reservations: Reservations
    ) -> None:
        await frontier.push([entry()])
        control = Control(store, frontier.keys)
        await control.refresh()
        assert not control.wanted
        assert await lease(frontier) == 1
        assert isinstance(await reservations.reserve("a.test", PATIENCE_MS), ReservationRefused)
        await control.refresh()
        assert control.wanted == {"a.test"}
        (left_ms,) = await store.send([command("PTTL", frontier.keys.wanted)])
        assert 0 < left_ms <= 3_000

    async def test_its_holder_makes_no_way_for_requests_of_its_own(self, store: RedisStore, frontier: Frontier) -> None:
        """They have turns under its lease."""
        await frontier.push([entry()])
        assert await lease(frontier) == 1
        own = Reservations(store, frontier.keys, frontier._clock, HOLD_MS, delay_ms=600, replica="r1")
        assert isinstance(await own.reserve("a.test", PATIENCE_MS), ReservationRefused)
        for replica, wanted in {"r1": set[str](), "r2": {"a.test"}}.items():
            control = Control(store, frontier.keys, replica)
            await control.refresh()
            assert control.wanted == wanted

    async def test_it_is_reserved_once_its_holder_only_waits_for_handlers(
        self, frontier: Frontier, reservations: Reservations, time: ManualTime
    ) -> None:
        """And the lease ends without a request too early."""
        await frontier.push([entry("https://a.test/1"), entry("https://a.test/2")])
        (answer,), _ = await frontier.lease([0], 1, "r1", 1)
        (held,) = answer.leases
        await reservations.open_lease(held, time.ms + 500)
        reserved = await reserve(reservations)
        assert reserved.slot_ms == time.ms + 500
        assert await reservations.reserve("a.test", PATIENCE_MS) == ReservationRefused(time.ms + 300)
        await frontier.settle([Settlement(held, time.ms, urls=[SettledUrl(held.entries[0], "done", "ok")])])
        await frontier.release([Settlement(held, time.ms)])
        await reservations.end(reserved, time.ms + 900)
        time.ms += 899
        assert await lease(frontier) == 0
        time.ms += 1
        assert await lease(frontier) == 1
        assert isinstance(
            await reservations.reserve("a.test", PATIENCE_MS), ReservationRefused
        )  # a new lease is closed

    async def test_a_lease_that_has_ended_is_not_opened(
        self, frontier: Frontier, reservations: Reservations, time: ManualTime
    ) -> None:
        await frontier.push([entry()])
        (answer,), _ = await frontier.lease([0], 1, "r1", 1)
        await frontier.release([Settlement(answer.leases[0], time.ms)])
        await reservations.open_lease(answer.leases[0], time.ms)
        assert await lease(frontier) == 1
        assert isinstance(await reservations.reserve("a.test", PATIENCE_MS), ReservationRefused)

    @pytest.mark.parametrize("ended", ["expired", "released"])
    async def test_a_lease_that_ends_during_a_reservation_does_not_shorten_its_delay(
        self, store: RedisStore, frontier: Frontier, reservations: Reservations, time: ManualTime, ended: str
    ) -> None:
        """It postpones the next request beyond the end of the reservation, but not enough for the one that is in flight."""
        delay_ms = 40_000
        await frontier.push([entry()])
        (answer,), _ = await frontier.lease([0], 1, "r1", 1)
        (held,) = answer.leases
        await store.send([command("HSET", frontier.keys.of("a.test").domain("a.test"), "delay", delay_ms)])
        await reservations.open_lease(held, time.ms)
        reserved = await reserve(reservations)
        if ended == "expired":
            time.ms += 12_000
            assert await lease(frontier) == 0
        else:
            await frontier.release([Settlement(held, reserved.until_ms + 1)])
        assert isinstance(await reservations.reserve("a.test", 60_000), ReservationRefused)
        time.ms = reserved.until_ms - 1_000
        await reservations.end(reserved, time.ms + delay_ms)
        time.ms += delay_ms - 1
        assert await lease(frontier) == 0
        time.ms += 1
        assert await lease(frontier) == 1
