"""Reports that arrive late, and reports and permits that a server has forgotten."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from frontier.budget import SURE_MS
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply
from frontier.store import RedisStore
from tests.frontier.budget.spending import AT_ONCE, MakeBudget, fetch, keep_asking, recount, settle
from tests.frontier.helpers import CountingStore, ManualTime, ask

LIMIT = 20
QUIET_MS = 3_000


class Restarted(CountingStore):
    """A server with a run ID that a test may change."""

    run = "before"

    def run_of(self, key: str) -> str:
        return self.run


class Recorder(CountingStore):
    """Keeps the last calls, so that they can arrive once more."""

    last: Sequence[Call] = ()

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        self.last = calls
        return await super().send(calls)


async def test_a_time_in_which_the_counters_could_not_be_read_does_not_make_them_sure(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime
) -> None:
    """Given two pages of a limit of ten that a node has lost, when it hangs, then they count until it has answered for a
    while, in which it is told again of them."""
    one = budget("one", 10)
    await one.refresh(AT_ONCE, 1)
    while await fetch(one, store, keys):
        await one.refresh(AT_ONCE, 1)
    await settle(store, keys, -2)
    await one.recount()
    time.ms += 2 * SURE_MS  # without an answer
    await one.recount()
    await one.refresh(AT_ONCE, 1)
    assert not one.available
    await settle(store, keys, 2)
    await recount(one, time)
    assert not one.available
    assert one.is_exhausted


async def test_a_report_that_arrives_after_a_later_one_changes_nothing(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget
) -> None:
    """Given a call whose sender gave up on it and asked again, when it arrives at last, then no permit is lost or won."""
    server = Recorder(store)
    one = budget("one", LIMIT, server)
    await one.refresh(AT_ONCE, AT_ONCE)
    late = server.last
    await fetch(one, store, keys, 3)
    await one.refresh(AT_ONCE, AT_ONCE)
    known = await ask(store, "HGETALL", keys.budget)
    await store.send(late)
    assert await ask(store, "HGETALL", keys.budget) == known


@pytest.mark.parametrize("is_known", [False, True])
async def test_nobody_gets_permits_until_all_had_time_to_report(
    store: RedisStore, keys: CrawlKeys, budget: MakeBudget, time: ManualTime, is_known: bool
) -> None:
    server = Restarted(store)
    one, other = budget("one", LIMIT, server), budget("other", LIMIT, server)
    # Given a replica that holds permits and has used some, all of which the server has forgotten,
    await other.refresh(0, 0)
    if is_known:
        await one.refresh(AT_ONCE, 0)
    kept = await ask(store, "DUMP", keys.budget), await ask(store, "DUMP", keys.takers)
    await one.refresh(AT_ONCE, AT_ONCE)
    pages = await fetch(one, store, keys, 3)
    await one.refresh(AT_ONCE, AT_ONCE)
    assert one.take()
    for key, dump in zip((keys.budget, keys.takers), kept, strict=True):
        await ask(store, "DEL", key)
        if dump is not None:
            await ask(store, "RESTORE", key, 0, dump)
    server.run = "after"
    # when others ask first, then they get nothing, and it keeps the permit of its page in progress.
    late = budget("late", LIMIT, server)
    await keep_asking(late, time, QUIET_MS // 2)
    assert late.available == 0
    await one.refresh(AT_ONCE, 0)
    await settle(store, keys, 1)
    one.used(1)
    # Later there are permits again, and as many pages as the limit says.
    await keep_asking(late, time, QUIET_MS)
    pages += 1
    for _ in range(20):
        for replica in (one, late):
            pages += await fetch(replica, store, keys)
            await keep_asking(replica, time, 500)
    assert pages == LIMIT
