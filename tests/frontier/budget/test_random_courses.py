"""Replies that are lost, and random courses of events with replicas that are killed."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from frontier.budget import Budget, PageLimit
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply
from frontier.store import RedisStore, Store
from tests.frontier.budget.spending import AT_ONCE, LEASE_MS, MakeBudget, fetch, settle
from tests.frontier.helpers import CountingStore, ManualTime


async def test_a_lost_reply_loses_no_permit(store: RedisStore, keys: CrawlKeys, budget: MakeBudget) -> None:
    """A report that is repeated counts once."""

    class Deaf(CountingStore):
        async def send(self, calls: Sequence[Call]) -> list[Reply]:
            replies = await super().send(calls)
            if self.calls["reserve_budget"] == 3:
                raise RedisAway("lost on the way back")
            return replies

    one = budget("one", 10, Deaf(store))
    await one.refresh(AT_ONCE, 1)
    assert await fetch(one, store, keys, 4) == 4
    with pytest.raises(RedisAway):
        await one.refresh(AT_ONCE, 0)
    await one.refresh(AT_ONCE, 0)
    assert repr(one) == "<Budget used=4/10 permits=6>"


class Unreliable(CountingStore):
    """Loses calls and replies of `reserve_budget` and `recount`, which may arrive `late`. Calls `meanwhile` before and
    after an exchange."""

    def __init__(self, store: Store, rng: random.Random, meanwhile: Callable[[], Awaitable[None]]) -> None:
        super().__init__(store)
        self._rng = rng
        self._meanwhile = meanwhile
        self.late: list[Sequence[Call]] = []

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        await self._meanwhile()
        chance = self._rng.random() if calls[0].script else 1.0
        if chance < 0.1:
            self.late.append(calls)
            raise RedisAway("lost on the way")
        replies = await super().send(calls)
        await self._meanwhile()
        if chance < 0.2:
            raise RedisAway("lost on the way back")
        if chance < 0.3:
            self.late.append(calls)
        return replies

    async def echo(self) -> None:
        """Deliver a call that was lost or already executed."""
        if self.late:
            await super().send(self.late.pop(self._rng.randrange(len(self.late))))


class Course:
    """A crawl of random steps: replicas take, settle, refresh, die and join, and calls to Redis are lost or delayed. The
    limit changes, and replicas learn of it by and by. `most`: how many pages there may be in the end. It is more than the
    limit if as many were requested before all replicas had heard of it."""

    def __init__(self, rng: random.Random, store: RedisStore, keys: CrawlKeys, budget: MakeBudget, limit: int) -> None:
        self._rng = rng
        self._store = store
        self._keys = keys
        self._budget = budget
        self.limit = self.most = limit
        self.pages = 0
        self._limits = [PageLimit(limit, 1)]
        self._born = 0
        self._in_flight: dict[Budget, int] = {}
        self._stores: dict[Budget, Unreliable] = {}
        self._asking: set[Budget] = set()
        self.join()

    def join(self) -> None:
        self._born += 1
        through = Unreliable(self._store, self._rng, self._meanwhile)
        limit = self._rng.choice(self._limits[-2:])  # it may have read its settings some time ago
        one = self._budget(f"r{self._born}", limit.pages, through, limit.revision)
        self._in_flight[one], self._stores[one] = 0, through

    async def _meanwhile(self) -> None:
        if len(self._asking) < 3:
            for _ in range(self._rng.choice((0, 0, 1, 5, 10))):
                await self.step()

    async def step(self) -> None:
        """Do one random step with a random replica."""
        rng = self._rng
        one = rng.choice(list(self._in_flight))
        steps = {"take": 40, "settle": 8, "fail": 4, "refresh": 20, "echo": 5, "learn": 3, "die": 0.2, "join": 0.5}
        match rng.choices(list(steps), list(steps.values()))[0]:
            case "learn":
                one.apply(self._limits[-1], LEASE_MS)
            case "take":
                self._in_flight[one] += one.take()
                if not one.limit:  # it has not heard of one
                    self.most = max(self.most, self.pages + self.in_flight)
            case "settle" if self._in_flight[one]:
                await self._settle(one, rng.randint(1, self._in_flight[one]))
            case "fail" if self._in_flight[one]:
                self._in_flight[one] -= 1
                one.give_back()
            case "refresh":
                await self._refresh(one)
            case "echo":
                await rng.choice(list(self._stores.values())).echo()
            case "die" if one not in self._asking:
                del self._in_flight[one]
                self.join()
            case "join" if len(self._in_flight) < 5:
                self.join()

    async def _settle(self, one: Budget, pages: int) -> None:
        self._in_flight[one] -= pages
        self.pages += pages
        await settle(self._store, self._keys, pages)
        if self._rng.random() < 0.01 and one not in self._asking:
            del self._in_flight[one]  # killed before it could count them
            self.join()
        else:
            one.used(pages)

    async def _refresh(self, one: Budget) -> None:
        if one in self._asking:
            return
        self._asking.add(one)
        try:
            await one.refresh(AT_ONCE, self._rng.randint(0, 2))
            if one.is_used_up:
                await one.recount()
        except RedisAway:
            pass
        self._asking.remove(one)

    async def end(self) -> None:
        """Let the live replicas settle their pages in flight and report them."""
        for one in list(self._in_flight):
            if pages := self._in_flight.get(one, 0):
                await self._settle(one, pages)
            await self._refresh(one)

    @property
    def in_flight(self) -> int:
        return sum(self._in_flight.values())

    def set_limit(self, pages: int) -> None:
        """Set the limit. Replicas learn of it by and by."""
        self.limit = self.most = pages
        self._limits.append(PageLimit(pages, len(self._limits) + 1))

    @property
    def is_over(self) -> bool:
        return self.limit > 0 and all(one.limit == self.limit and one.is_exhausted for one in self._in_flight)


STEPS = 1_500


@pytest.mark.parametrize("seed", range(10))
async def test_whatever_happens_there_are_exactly_as_many_pages(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime, seed: int
) -> None:
    """Most errors would occur near the limit, so it is raised slightly each time it is reached, or removed for a time."""
    rng = random.Random(seed)
    course = Course(rng, store, keys, budget, limit=5)
    met = 0
    for number in range(20 * STEPS):
        time.ms += rng.choice((0, 5, 20))
        await course.step()
        assert not course.limit or course.pages <= course.most
        if rng.random() < 0.01:
            await course.end()
        if course.is_over:
            assert course.limit <= course.pages
            met += course.pages == course.limit
            if number > STEPS:
                break
            course.set_limit(rng.choice((0, *(course.pages + by for by in (1, 3, 8, 40)))))
        if not course.limit and rng.random() < 0.02:
            course.set_limit(course.pages + course.in_flight + 60)
    assert course.is_over
    assert met
