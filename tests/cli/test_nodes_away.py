"""Commands on a cluster of which one node is away: they show what can be read, say what is missing, and change all or
nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontier.control import Control
from frontier.crawls import Crawl, open_crawl
from frontier.domains import shard_of
from frontier.store import connect
from tests.e2e.harness import Finished
from tests.typed import Typed
from tests.valkey_cluster import ValkeyCluster

pytestmark = pytest.mark.e2e

SHARDS = 16
DOMAINS = tuple(f"site{number}.test" for number in range(24))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(persistent=True, with_replicas=False) as running:
        yield running


@pytest.fixture
def missing(cluster: ValkeyCluster, typed: Typed, tmp_path: Path) -> Iterator[set[int]]:
    """The shards of a node that is away, which has no control keys, of a crawl "c" without replicas."""
    seeds = tmp_path / "seeds.txt"
    seeds.write_text("".join(f"http://{domain}/\n" for domain in DOMAINS))
    words = ("seed", "-f", str(seeds), "--crawl", "c", "--redis", cluster.url)
    made = typed(*words, environment={"CRAWLER_FRONTIER__SHARDS": str(SHARDS)})
    assert made.code == 0, made.err
    keys = asyncio.run(_opened(cluster.url)).keys
    node = next(one for one in cluster.masters if one is not cluster.owner(keys.meta))
    found = {number for number, shard in enumerate(keys.shards) if cluster.owner(shard.base) is node}
    cluster.kill(node)
    try:
        yield found
    finally:
        cluster.restart(node)
        cluster.wait_ok()


async def _opened(url: str) -> Crawl:
    store = await connect(url)
    try:
        return await open_crawl(store, "c")
    finally:
        await store.close()


def test_commands_say_which_shards_they_cannot_read(cluster: ValkeyCluster, missing: set[int], typed: Typed) -> None:
    def type_in(*words: str) -> Finished:
        return typed(*words, "--crawl", "c", "--redis", cluster.url)

    assert 0 < len(missing) < SHARDS
    status = type_in("status", "--json")
    assert status.code == 0, status.err
    assert f"{len(missing)} of {SHARDS} shards cannot be read" in status.out
    shards = type_in("shards", "--json")
    assert shards.code == 0, shards.err
    assert f"{len(missing)} shards cannot be read" in shards.err
    shown = {shard for line in json.loads(shards.out) for shard in line["shards"]}
    assert shown
    assert shown.isdisjoint(missing)
    letters = type_in("dead", "list")
    assert letters.code == 0, letters.err
    assert f"{len(missing)} shards cannot be read" in letters.err


def test_a_delay_that_cannot_be_set_is_not_set(cluster: ValkeyCluster, missing: set[int], typed: Typed) -> None:
    away = next(domain for domain in DOMAINS if shard_of(domain, SHARDS) in missing)
    here = next(domain for domain in DOMAINS if shard_of(domain, SHARDS) not in missing)
    for domain, code in ((away, 75), (here, 0)):
        assert typed("delay", domain, "7", "--crawl", "c", "--redis", cluster.url).code == code

    async def delays() -> dict[str, float]:
        store = await connect(cluster.url)
        try:
            control = Control(store, (await open_crawl(store, "c")).keys)
            await control.refresh()
            return control.rules.delays
        finally:
            await store.close()

    assert asyncio.run(delays()) == {here: 7.0}
