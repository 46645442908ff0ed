"""Simulated time: one heap of future events, and an event loop for each replica.

A replica's loop is a complete asyncio loop for the code that runs on it (tasks, futures, timers, `asyncio.timeout`), but
its clock differs from the global one, and it can pause or stop forever, like a suspended or killed process. Nothing
here waits: the universe proceeds from one event to the next.

The log of a run. Lines are formatted only when they are read.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from itertools import count
from typing import Any, cast

TICK_S = 1e-6
"""How late timers fire, at least: a loop whose clock is just before the time would set the timer again forever."""

KEPT_TASKS = 200
"""Above so many tasks of a loop, those that are done are forgotten."""


class Universe:
    """Global time in seconds, and the events to come."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.breach: BaseException | None = None
        self._order = count()
        self._heap: list[tuple[float, int, SimLoop | None, asyncio.Handle | Callable[[], None]]] = []

    def at(self, when: float, action: Callable[[], None], loop: SimLoop | None = None) -> None:
        """Run `action` at `when`, in the process of `loop` if one is given."""
        heapq.heappush(self._heap, (when, next(self._order), loop, action))

    def push(self, when: float, loop: SimLoop, handle: asyncio.Handle) -> None:
        heapq.heappush(self._heap, (when, next(self._order), loop, handle))

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Let `step` raise the breaches found in this block, because the program under test may catch them."""
        try:
            yield
        except AssertionError as breach:
            self.breach = self.breach or breach
            raise

    def step(self) -> bool:
        """Run the next event. Returns False if there is none."""
        if not self._heap:
            return False
        when, _, loop, action = heapq.heappop(self._heap)
        self.now = max(self.now, when)
        if loop is None:
            cast(Callable[[], None], action)()
        elif loop.paused_until > self.now:
            heapq.heappush(self._heap, (loop.paused_until, next(self._order), loop, action))
        elif not loop.is_dead:
            loop.run(action)
        self.events += 1
        if self.breach is not None:
            raise self.breach
        return True


class SimLoop:
    """The event loop of one simulated process: as much of asyncio's interface as tasks, futures and timers need.

    `rate`: seconds of its clock in one true second. `offset`: what its clock shows at the beginning. `lateness`: the
    chance that a timer rings up to a second late, as on a machine that is overloaded. `drift`: how far `rate` may be off.
    """

    def __init__(self, universe: Universe, name: str, rng: random.Random, lateness: float, drift: float) -> None:
        self.universe = universe
        self.name = name
        self._rng = rng
        self._lateness = lateness
        self.rate = 1.0 + rng.uniform(-drift, drift)
        self.offset = rng.uniform(0.0, 1e6)
        self.paused_until = 0.0
        self.is_dead = False
        self.failures: list[str] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._kept_tasks = KEPT_TASKS
        self.as_asyncio = cast(asyncio.AbstractEventLoop, self)

    def __repr__(self) -> str:
        return f"<SimLoop {self.name} rate={self.rate:.6f}>"

    def run(self, action: asyncio.Handle | Callable[[], None]) -> None:
        """Run one callback of this process."""
        asyncio._set_running_loop(self.as_asyncio)
        try:
            if isinstance(action, asyncio.Handle):
                if not action.cancelled():
                    action._run()
            else:
                action()
        finally:
            asyncio._set_running_loop(None)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start a task of this process from outside of it."""
        task = self.create_task(work)
        task.add_done_callback(self._note_failure)
        return task

    def _note_failure(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failures.append(f"{task.get_coro()!r} ended with {task.exception()!r}")

    # what asyncio asks of a loop

    def time(self) -> float:
        return self.offset + self.universe.now * self.rate

    def call_soon(
        self, callback: Callable[..., object], *arguments: object, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self.as_asyncio, context)
        self.universe.push(self.universe.now, self, handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *arguments: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *arguments, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *arguments: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, arguments, self.as_asyncio, context)
        at = max(self.universe.now, (when - self.offset) / self.rate) + TICK_S
        if self._rng.random() < self._lateness:
            at += self._rng.random()
        self.universe.push(at, self, handle)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.as_asyncio)

    def create_task(self, work: Coroutine[Any, Any, Any], **_: object) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=self.as_asyncio)
        # A killed process leaves tasks behind, and nobody is to be told.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._tasks.append(task)
        if len(self._tasks) > self._kept_tasks:
            self._tasks = [one for one in self._tasks if not one.done()]
            self._kept_tasks = max(KEPT_TASKS, 2 * len(self._tasks))
        return task

    def close(self) -> None:
        """End the process and close its tasks. Their last calls have no effect."""
        self.is_dead = True
        self.run(self._close_tasks)
        self._tasks.clear()

    def _close_tasks(self) -> None:
        for task in self._tasks:
            with contextlib.suppress(RuntimeError):  # it awaits something on its way out
                cast(Coroutine[Any, Any, Any], task.get_coro()).close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return not self.is_dead

    def is_closed(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """A cancelled timer stays in the heap and does nothing."""


class SimClock:
    """A replica's `Clock`: its loop's time."""

    def __init__(self, loop: SimLoop) -> None:
        self.monotonic = loop.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Breach(AssertionError):
    """Raised when an invariant does not hold. `about`: the domain, shard or replica that it concerns."""

    def __init__(self, invariant: str, message: str, about: str = "") -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.about = about


class History:
    """Lines of (time, who, what, details). `kept`: the number of the last ones that are kept, None for all."""

    def __init__(self, universe: Universe, kept: int | None = None) -> None:
        self._universe = universe
        self._lines: deque[tuple[float, str, str, object]] = deque(maxlen=kept)

    def note(self, who: str, what: str, details: object = "") -> None:
        self._lines.append((self._universe.now, who, what, details))

    def told(self, about: str = "") -> list[str]:
        """Return the lines that contain `about`."""
        lines = [f"{at:10.4f}  {who:<8} {what:<10} {details}" for at, who, what, details in self._lines]
        return [line for line in lines if about in line]
