"""Turns and budgets: all work on pages that grows with their content is done in turns of their domains. No I/O.

A page of a stranger can take seconds to read, to extract or to queue. In the order of arrival, a few such domains would
delay all others. So whatever is not small waits in a `FairTurns`: for a process that reads documents, for the event
loop, for a group of the commit. The domain that has used least has the next turn, and every second turn goes to the one
that has waited longest.

Work that is known to be large, or of a domain whose work took long before, is *heavy*. It has at most half of the
resources, so light work waits only for light work. With a single resource, both have the same share of the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from heapq import nlargest
from typing import Any, Generic, TypeVar

T = TypeVar("T")

HALF_LIFE_S = 600.0
"""Seconds of use, of all domains together, after which only half of a domain's use still counts."""

REMEMBERED = 1_000
"""Domains whose use is remembered: those that used most, and up to as many others."""

ORDINARY_S = 0.25
"""CPU seconds that each piece of work may take on average: ten times what an ordinary text takes. The slowest take 0.6."""

HEAVY_S = 0.5
BURST_S = 10.0
SHARE = 0.01
"""CPU seconds beyond that after which a domain's work is heavy, and after which only its links are read; and how much of
each later second it gets back."""

MOST_DEBT_S = 10.0
"""The most seconds of light work that come first after heavy work."""


class FairQueue:
    """The items that wait for a turn, by domain. Of one domain, the item that was added first has the first turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Any]] = {}  # the domain that has waited longest comes first
        self._used_s: dict[str, tuple[float, float]] = {}  # use of the domain, and of all domains at that time
        self._total_s = 0.0
        self._is_for_longest = False

    def __repr__(self) -> str:
        return f"<FairQueue domains={len(self._waiting)} remembered={len(self._used_s)}>"

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, domain: str, item: Any) -> None:
        """Let `item` wait for a turn of `domain`."""
        self._waiting.setdefault(domain, deque()).append(item)

    def remove(self, domain: str, item: Any) -> None:
        """Let `item` no longer wait, if it does."""
        items = self._waiting.get(domain, deque())
        with contextlib.suppress(ValueError):
            items.remove(item)
        if not items:
            self._waiting.pop(domain, None)

    def take(self) -> Any:
        """The item that has the next turn. It no longer waits. None if none waits."""
        if not self._waiting:
            return None
        longest = next(iter(self._waiting))
        domain = longest if self._is_for_longest else min(self._waiting, key=self._use)
        self._is_for_longest = not self._is_for_longest
        items = self._waiting.pop(domain)
        item = items.popleft()
        if items:
            self._waiting[domain] = items
        return item

    def ended(self, domain: str, took_s: float) -> None:
        """A turn of `domain` has ended after `took_s` seconds."""
        used_s = self._use(domain) + took_s
        self._total_s += took_s
        self._used_s[domain] = (used_s, self._total_s)
        self._used_s = _most(self._used_s, self._use)

    def _use(self, domain: str) -> float:
        used_s, total_s = self._used_s.get(domain, (0.0, 0.0))
        return used_s * math.exp((total_s - self._total_s) / HALF_LIFE_S * math.log(2))


class WorkBudget:
    """What the work on pages of each domain took beyond `ordinary_s` each. Times are seconds of a monotonic clock."""

    def __init__(self, ordinary_s: float = ORDINARY_S, heavy_s: float = HEAVY_S, share: float = SHARE) -> None:
        self._ordinary_s, self._heavy_s, self._share = ordinary_s, heavy_s, share
        self._spent_s: dict[str, tuple[float, float]] = {}  # and when that was

    def __repr__(self) -> str:
        return f"<WorkBudget domains={len(self._spent_s)}>"

    def is_spent(self, domain: str, now: float) -> bool:
        """Whether nothing but the links of `domain` is extracted now."""
        return self._spent(domain, now) >= BURST_S

    def is_heavy(self, domain: str, now: float) -> bool:
        """Whether the work on pages of `domain` took so long that more of it may, too."""
        return self._spent(domain, now) >= self._heavy_s

    def spend(self, domain: str, took_s: float, now: float) -> None:
        """Work on a page of `domain` took `took_s` CPU seconds."""
        spent_s = self._spent(domain, now) + took_s - self._ordinary_s
        if spent_s <= 0:
            self._spent_s.pop(domain, None)
            return
        self._spent_s[domain] = (spent_s, now)
        self._spent_s = _most(self._spent_s, lambda one: self._spent(one, now))

    def _spent(self, domain: str, now: float) -> float:
        spent_s, at = self._spent_s.get(domain, (0.0, now))
        return max(0.0, spent_s - self._share * (now - at))


def _most(used: dict[str, tuple[float, float]], use: Callable[[str], float]) -> dict[str, tuple[float, float]]:
    """`used`, or if it has too many domains, those of most `use`."""
    if len(used) <= 2 * REMEMBERED:
        return used
    return {domain: used[domain] for domain in nlargest(REMEMBERED, used, use)}


class FairTurns(Generic[T]):
    """Gives domains turns with the `resources`. After a heavy turn, the next one has to wait `rest` times as long and, with
    `shares_cores`, for as long as light work took meanwhile, which needs the time on a machine with few cores."""

    def __init__(self, resources: Iterable[T], rest: float = 0.0, shares_cores: bool = False) -> None:
        self._free = list(resources)[::-1]
        self._most_heavy = max(1, len(self._free) // 2)
        self._rest = rest
        self._shares_cores = shares_cores
        self._heavy_turns = 0
        self._debt_s = 0.0  # of heavy work: as much light work comes first
        self._light_s = 0.0  # of all light turns, if they share cores with heavy ones
        self._light, self._heavy = FairQueue(), FairQueue()

    def __repr__(self) -> str:
        return f"<FairTurns free={len(self._free)} light={self._light!r} heavy={self._heavy!r}>"

    @property
    def is_taken(self) -> bool:
        """Whether heavy work would have to wait now."""
        return bool(self._heavy or not self._free) or self._heavy_turns >= self._most_heavy

    @asynccontextmanager
    async def turn(self, domain: str, is_heavy: bool = False) -> AsyncIterator[T]:
        """A block that runs when `domain` has its turn. Yields a resource that nobody else uses meanwhile."""
        resource, end = await self.take(domain, is_heavy)
        try:
            yield resource
        finally:
            end()

    async def take(self, domain: str, is_heavy: bool = False) -> tuple[T, Callable[[], None]]:
        """Wait for a turn of `domain`. Returns its resource, and what ends it."""
        loop = asyncio.get_running_loop()
        queue = self._heavy if is_heavy else self._light
        call = loop.create_future()
        queue.add(domain, call)
        self._call()
        try:
            resource = await call
        except asyncio.CancelledError:
            if not call.cancelled():  # called in the same moment
                self._heavy_turns -= is_heavy
                self._release(call.result())
            else:
                queue.remove(domain, call)
            raise
        return resource, partial(self._end, domain, is_heavy, resource, loop.time(), self._light_s)

    def _end(self, domain: str, is_heavy: bool, resource: T, began: float, light_s: float) -> None:
        loop = asyncio.get_running_loop()
        took_s = loop.time() - began
        (self._heavy if is_heavy else self._light).ended(domain, took_s)
        self._debt_s = min(MOST_DEBT_S, max(0.0, self._debt_s + (took_s if is_heavy else -took_s)))
        if not is_heavy:
            self._light_s += self._shares_cores * took_s
        elif (rest_s := self._rest * took_s + min(took_s, self._light_s - light_s)) > 0:
            loop.call_later(rest_s, self._end_heavy)
        else:
            self._heavy_turns -= 1
        self._release(resource)

    def _end_heavy(self) -> None:
        self._heavy_turns -= 1
        self._call()

    def _release(self, resource: T) -> None:
        self._free.append(resource)
        self._call()

    def _call(self) -> None:
        """Call whoever has the next turns."""
        while self._free and (self._light or self._may_be_heavy):
            is_heavy = self._may_be_heavy and (not self._light or not self._debt_s)
            call = (self._heavy if is_heavy else self._light).take()
            if call.cancelled():
                continue
            self._heavy_turns += is_heavy
            call.set_result(self._free.pop())

    @property
    def _may_be_heavy(self) -> bool:
        return bool(self._heavy) and self._heavy_turns < self._most_heavy
