"""What the books know of a group of pages after its commit."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from crawler.commit import Committer, Result
from crawler.events import Events
from crawler.page import Outcome
from crawler.patience import Patience
from crawler.recent import RecentUrls
from crawler.sinks import Archive
from crawler.visit import Visit
from frontier.books import Books
from frontier.clock import SystemClock
from frontier.entries import Entry
from frontier.queue import Settled
from frontier.store import RedisStore
from tests.frontier.helpers import ManualTime, make_frontier
from tests.sinks.values import exchange, page, settings

SAME = b"the same everywhere " * 100


async def test_the_books_count_bodies_that_were_archived_before(
    store: RedisStore, crawl_name: str, tmp_path: Path
) -> None:
    # Given a lease on four URLs, three of which answer with the same body,
    frontier = await make_frontier(store, crawl_name, ManualTime())
    bodies = {"a": SAME, "b": SAME, "c": b"another one " * 200, "d": SAME}
    await frontier.push(Entry(f"https://site.test/{name}", "site.test") for name in bodies)
    ((leased,), _) = await frontier.lease([0], 1, "me", 1)
    (lease,) = leased.leases
    visit = Visit(lease, deadline=float("inf"), now=0.0)
    # When their pages are committed, in two groups, to an archive that remembers bodies,
    events, clock = Events(), SystemClock()
    archive = Archive(settings(tmp_path))
    await archive.start()
    patience = Patience(clock, events, random.Random(1))
    committer = Committer(frontier, archive, RecentUrls(10), patience, events, clock)
    running = asyncio.create_task(committer.run())
    for entry in lease.entries:
        made = exchange(entry.url[-1], bodies[entry.url[-1]])
        await committer.add(Result(visit, Settled(entry, Outcome.DONE, "200"), page(made)))
        if entry is lease.entries[1]:
            await committer.flush()
    await committer.flush()
    running.cancel()
    await archive.stop()
    # Then the books know that two of them brought nothing new.
    counts = await Books(store, frontier.keys).counts()
    assert (counts.done, counts.duplicates) == (4, 2)
