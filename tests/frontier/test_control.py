"""An operator's commands reach every replica that polls."""

from __future__ import annotations

import pytest

from frontier.control import Control, DomainRules
from frontier.crawls import create_crawl, save_settings
from frontier.keys import CrawlKeys
from frontier.store import RedisStore


@pytest.fixture
def both(store: RedisStore, crawl_name: str) -> tuple[Control, Control]:
    """The control of the operator, and that of a replica."""
    keys = CrawlKeys(crawl_name, 1)
    return Control(store, keys), Control(store, keys)


async def test_a_crawl_that_nobody_spoke_to_runs(both: tuple[Control, Control]) -> None:
    _, seen = both
    await seen.refresh()
    assert (seen.paused, seen.stopped, seen.rules) == (False, False, DomainRules())


async def test_pause_and_resume(both: tuple[Control, Control]) -> None:
    said, seen = both
    await said.set("pause")
    await seen.refresh()
    assert seen.paused
    await said.set("run")
    await seen.refresh()
    assert not seen.paused


async def test_rules_come_and_go(both: tuple[Control, Control]) -> None:
    said, seen = both
    await said.block("a.test")
    await said.set_delay("b.test", 2.5)
    await said.set_delay("a.test", 0)
    await seen.refresh()
    assert seen.rules == DomainRules(frozenset({"a.test"}), {"b.test": 2.5, "a.test": 0.0})
    await said.unblock("a.test")
    await said.set_delay("b.test", None)
    await seen.refresh()
    assert seen.rules == DomainRules(frozenset(), {"a.test": 0.0})


async def test_a_look_tells_that_more_was_seeded(both: tuple[Control, Control]) -> None:
    said, seen = both
    await seen.refresh()
    assert seen.seedings == 0
    await said.seeded()
    await said.seeded()
    await said.set("pause")
    await seen.refresh()
    assert (seen.seedings, seen.paused) == (2, True)


async def test_a_look_brings_the_revision_of_the_settings(
    both: tuple[Control, Control], store: RedisStore, crawl_name: str
) -> None:
    _, seen = both
    crawl = await create_crawl(store, crawl_name, 1, b"{}")
    await seen.refresh()
    assert seen.settings_revision == 1
    await save_settings(store, crawl, b'{"a": 1}')
    await seen.refresh()
    assert seen.settings_revision == 2


async def test_a_look_without_news_is_one_small_read(both: tuple[Control, Control], store: RedisStore) -> None:
    said, seen = both
    await said.block("a.test")
    await seen.refresh()
    before = store.round_trips
    await seen.refresh()
    assert store.round_trips == before + 1
