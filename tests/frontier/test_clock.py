"""`ServerClock` is never ahead of the server, and behind it by at most `uncertainty_ms`."""

from __future__ import annotations

import pytest

from frontier.clock import ServerClock
from tests.frontier.helpers import ManualTime


class SlowServer:
    """A server whose clock is ahead of ours by `ahead_ms`, with latencies `out_s` and `back_s`."""

    def __init__(self, time: ManualTime, ahead_ms: int = 0) -> None:
        self.time = time
        self.ahead_ms = ahead_ms
        self.out_s = self.back_s = 0.0

    async def read_ms(self) -> float:
        await self.time.sleep(self.out_s)
        read = self.now_ms
        await self.time.sleep(self.back_s)
        return read

    @property
    def now_ms(self) -> int:
        return self.time.ms + self.ahead_ms


@pytest.mark.parametrize(("out_s", "back_s"), [(0.0, 0.4), (0.4, 0.0), (0.2, 0.2), (4.0, 0.1)])
async def test_the_server_lies_between_two_bounds_however_lopsided_the_way(out_s: float, back_s: float) -> None:
    time = ManualTime()
    server = SlowServer(time, ahead_ms=3_600_000)
    server.out_s, server.back_s = out_s, back_s
    clock = ServerClock(time, server.read_ms)
    await clock.refresh()
    assert clock.now_ms() <= server.now_ms <= clock.now_ms() + clock.uncertainty_ms
    assert clock.uncertainty_ms == pytest.approx((out_s + back_s) * 1000, abs=1)


async def test_a_slow_reading_does_not_replace_a_surer_one_until_that_has_aged() -> None:
    time = ManualTime()
    server = SlowServer(time)
    clock = ServerClock(time, server.read_ms)
    await clock.refresh()
    server.out_s = 0.1
    await clock.refresh()
    assert clock.uncertainty_ms == 0
    await time.sleep(200.0)  # a thousandth of it is more than the round trip
    await clock.refresh()
    assert clock.uncertainty_ms == 100


async def test_a_reading_during_which_the_process_was_suspended_is_repeated() -> None:
    """It would say only that the server's clock is between now and the beginning of the suspension."""
    time = ManualTime()
    server = SlowServer(time, ahead_ms=3_600_000)
    server.back_s = 80.0

    async def read_ms() -> float:
        read = await server.read_ms()
        server.back_s = 0.0
        return read

    clock = ServerClock(time, read_ms)
    await clock.refresh()
    assert clock.now_ms() == server.now_ms
    assert clock.uncertainty_ms == 0


async def test_it_cannot_be_read_before_it_was_set() -> None:
    time = ManualTime()
    with pytest.raises(RuntimeError):
        ServerClock(time, SlowServer(time).read_ms).now_ms()
