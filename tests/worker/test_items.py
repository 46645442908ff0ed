"""Items are checked against the types on which all replicas agree, and those that do not fit are rejected."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import pytest

from crawler.events import Event, Events, ItemsRejected, RedisOutageEnded
from crawler.page import Item, Page
from crawler.redis_retry import RedisRetry
from crawler.scope.extract_rules import Kinds
from crawler.worker.items import REREAD_S, ItemTypes
from frontier.clock import SystemClock
from frontier.crawls import FieldTypes
from frontier.errors import RedisAway
from frontier.keys import CrawlKeys
from frontier.scripts import Call, Reply
from frontier.shards import Nodes
from frontier.store import RedisStore, Store
from tests.frontier.helpers import CountingStore, ManualTime, ask
from tests.sinks.values import exchange, page
from tests.worker.helpers import runtime


class Replica:
    """A replica's view of the types, over a store that counts."""

    def __init__(
        self,
        store: Store,
        crawl_name: str,
        declared: Mapping[str, Kinds] | None = None,
        retry: RedisRetry | None = None,
    ) -> None:
        self.time = ManualTime()
        self.store = CountingStore(store)
        self.saved: dict[str, Kinds] = {}
        self.events: list[Event] = []
        shared = runtime(self.time, retry=retry)
        shared.events.subscribe(self.events.append, ItemsRejected)
        self.emit, self.retry = shared.events.emit, shared.retry
        self.types = ItemTypes(shared, FieldTypes(self.store, CrawlKeys(crawl_name, 1)), self._save)
        self.types.apply(declared or {})

    def _save(self, types: Mapping[str, Kinds]) -> None:
        self.saved |= types

    async def checked(self, *items: Mapping[str, Any], name: str = "shop") -> Page:
        encoded = tuple(Item(name, msgspec.json.encode(item)) for item in items)
        return await self.types.checked(page(exchange("a", b"x"), items=encoded))

    async def kept(self, *items: Mapping[str, Any]) -> list[Any]:
        return [item.fields for item in (await self.checked(*items)).items]


@pytest.fixture
def replica(store: RedisStore, crawl_name: str) -> Callable[..., Replica]:
    return lambda **more: Replica(store, crawl_name, **more)


async def test_what_another_replica_has_found_counts(replica: Callable[..., Replica]) -> None:
    one, other = replica(), replica()
    assert await one.kept({"name": "a", "price": 1}, {"name": None, "price": None}) == [
        {"name": "a", "price": 1},
        {"name": None, "price": None},
    ]
    await other.checked({"name": "c", "price": 2.5, "new": True})
    assert other.saved == {"shop": {"name": "text", "price": "float", "new": "bool"}}
    assert await one.kept({"name": "d", "price": 3}) == [{"name": "d", "price": 3}]


async def test_no_site_decides_about_the_items_of_others(
    replica: Callable[..., Replica], store: RedisStore, crawl_name: str
) -> None:
    """Values of different types are kept, whichever replica finds them first, and make the field text."""
    one, other = replica(), replica()
    values = [[], "on request", 2.5, 1, True, {}]
    assert await one.kept({"price": []}) == [{"price": []}]
    for each in (other, one):
        found = await each.checked(*({"price": value} for value in values))
        assert [item.fields["price"] for item in found.items] == values
        assert found.rejected == ()
    assert other.saved == {"shop": {"price": "text"}}
    assert await FieldTypes(store, CrawlKeys(crawl_name, 1)).read() == {("shop", "price"): "text"}


async def test_a_value_that_is_not_of_its_declared_type_is_rejected(replica: Callable[..., Replica]) -> None:
    other = replica(declared={"shop": {"price": "float"}})
    found = await other.checked({"name": "b", "price": "on request"}, {"name": "c", "price": 2.5})
    assert [item.fields["name"] for item in found.items] == ["c"]
    assert [str(item) for item in found.rejected] == ["shop: price: changed 'on request' (text instead of float)"]
    assert msgspec.json.decode(found.rejected[0].json) == {"name": "b", "price": "on request"}
    assert found.rejected_by == {"shop:price:changed": 1}
    assert other.events == [ItemsRejected(found.url, 1, str(found.rejected[0]))]


async def test_a_number_that_no_column_can_have_is_rejected_in_the_first_item(replica: Callable[..., Replica]) -> None:
    found = await replica().checked({"a": 1 << 63})
    assert [str(one) for one in found.rejected] == ["shop: a: size '9223372036854775808' (a number that is too large)"]
    assert found.items == ()


async def test_a_rejected_item_teaches_nothing(replica: Callable[..., Replica]) -> None:
    one = replica()
    assert await one.kept({"a": 1 << 63, "b": 1}, {"b": "text"}) == [{"b": "text"}]
    assert one.saved == {"shop": {"b": "text"}}


async def test_a_replica_that_knows_the_fields_asks_nobody(replica: Callable[..., Replica]) -> None:
    one = replica()
    await one.checked()
    assert one.store.calls.total() == 0
    await one.checked({"a": 1, "none": None})
    asked = one.store.calls.total()
    assert asked == 2
    for _ in range(50):
        await one.checked(*[{"a": 2, "none": None}] * 400)
        one.time.ms += 100
    assert one.store.calls.total() == asked
    one.time.ms += int(1000 * REREAD_S)
    for _ in range(50):
        assert await one.kept({"a": 2}) == [{"a": 2}]
    assert one.store.calls.total() == asked + 1


async def test_what_an_operator_has_forgotten_is_learnt_anew(
    replica: Callable[..., Replica], store: RedisStore, crawl_name: str
) -> None:
    one = replica()
    await one.checked({"a": 1})
    kept = FieldTypes(store, CrawlKeys(crawl_name, 1))
    await kept.forget("shop")
    one.time.ms += int(1000 * REREAD_S)
    await one.checked({"a": True})
    assert await kept.read() == {("shop", "a"): "bool"}


async def test_replicas_agree_again_after_types_were_forgotten(
    replica: Callable[..., Replica], store: RedisStore, crawl_name: str
) -> None:
    one, other = replica(), replica()
    kept = FieldTypes(store, CrawlKeys(crawl_name, 1))
    await one.checked({"a": "3.5"})
    await kept.forget("shop")
    await other.checked({"a": 5.5})
    one.time.ms += int(1000 * REREAD_S)
    await one.checked({"a": 7.5})
    assert await kept.read() == {("shop", "a"): "float"}


async def test_what_the_server_lost_in_a_restart_is_kept_again(
    replica: Callable[..., Replica], store: RedisStore, crawl_name: str
) -> None:
    one = replica()
    await one.checked({"a": 1})
    await ask(store, "DEL", CrawlKeys(crawl_name, 1).types)
    one.emit(RedisOutageEnded(1.0))
    await one.checked({"a": 2})
    assert await FieldTypes(store, CrawlKeys(crawl_name, 1)).read() == {("shop", "a"): "int"}


async def test_what_the_settings_declare_counts_more_than_what_was_found(replica: Callable[..., Replica]) -> None:
    await replica().checked({"a": "text", "b": 1})
    one = replica(declared={"shop": {"a": "int"}})
    assert await one.kept({"a": "text"}, {"a": 1}, {"a": 1.5}, {"b": "x"}) == [{"a": 1}, {"b": "x"}]
    assert one.saved == {"shop": {"a": "int", "b": "text"}}


async def test_declared_fields_are_known_once_a_value_was_found(
    replica: Callable[..., Replica], store: RedisStore, crawl_name: str
) -> None:
    """So a field of which no page had a value can be named. A value costs a call only once, and null none."""
    kept = FieldTypes(store, CrawlKeys(crawl_name, 1))
    declared: dict[str, Kinds] = {"shop": {"a": "int", "b": "text", "c": "list"}}
    one = replica(declared=declared)
    await one.checked({"a": 1, "b": None, "c": "not a list"})
    assert await kept.read() == {}  # the item was rejected
    await one.checked({"a": 1, "b": None})
    assert await kept.read() == {("shop", "a"): "int"}
    one.store.calls.clear()
    await one.checked({"a": 2, "b": None})
    assert not one.store.calls
    one.emit(RedisOutageEnded(1.0))
    await one.checked({"a": 2, "b": None})
    assert await kept.read() == {("shop", "a"): "int"}
    await kept.forget("shop")
    one.time.ms += int(REREAD_S * 1000)
    await one.checked({"a": 2, "b": "x"})
    assert await kept.read() == {("shop", "a"): "int", ("shop", "b"): "text"}


class AwayAtTimes(CountingStore):
    """A cluster of two nodes. `is_away_now`: that of the control keys does not answer."""

    is_away_now = True

    async def send(self, calls: Sequence[Call]) -> list[Reply]:
        if self.is_away_now:
            raise RedisAway("away", "a")
        return await super().send(calls)

    def node_of(self, key: str) -> str:
        return "b" if ":1}" in key else "a"


async def test_a_node_that_is_away_holds_up_no_page(store: RedisStore, crawl_name: str) -> None:
    """What this replica finds counts until the node is back, and then what others have found, too."""
    events, cluster = Events(), AwayAtTimes(store)
    nodes = Nodes(cluster, CrawlKeys(crawl_name, 2))
    one = Replica(cluster, crawl_name, retry=RedisRetry(SystemClock(), events, random.Random(1), nodes=nodes))
    async with asyncio.timeout(20):
        assert await one.kept({"a": 1, "b": 1}) == [{"a": 1, "b": 1}]
        assert await one.kept({"a": 2}) == [{"a": 2}]
        await Replica(store, crawl_name).checked({"b": "text"})
        cluster.is_away_now = False
        one.retry.answered("a")
        await one.checked({"a": 3}, {"b": 2})
    kept = await FieldTypes(store, CrawlKeys(crawl_name, 1)).read()
    assert kept == {("shop", "a"): "int", ("shop", "b"): "text"}


async def test_invented_fields_are_limited_and_cost_no_calls(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawler.worker.items.MOST_FIELDS", 3)
    one = replica()
    await one.checked({f"word{number}": 1 for number in range(5)})
    asked = one.store.calls.total()
    assert len(await one.kept({"word1": 2}, {"new": 1}, {"new": "text"})) == 3
    assert one.store.calls.total() == asked
