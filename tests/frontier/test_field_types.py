"""The types of fields on a real server: the first one counts, for all replicas."""

from __future__ import annotations

import pytest

from frontier.crawls import LONGEST_FIELD, MOST_FIELDS, FieldTypes
from frontier.keys import CrawlKeys
from frontier.store import RedisStore
from tests.frontier.helpers import CountingStore, ask


@pytest.fixture
def keys(crawl_name: str) -> CrawlKeys:
    return CrawlKeys(crawl_name, 1)


async def test_the_first_type_counts_and_whole_numbers_become_decimal_ones(store: RedisStore, keys: CrawlKeys) -> None:
    one, other = FieldTypes(store, keys), FieldTypes(store, keys)
    name, price, odd = ("shop", "name"), ("shop", "price"), ("shop", "with\nline: end")
    assert await one.keep({name: "text", price: "int", odd: "bool"}) == {name: "text", price: "int", odd: "bool"}
    assert await other.keep({name: "int", price: "float"}) == {name: "text", price: "float"}
    assert await one.keep({price: "int", ("other", "price"): "text"}) == {price: "float", ("other", "price"): "text"}
    kept = {name: "text", price: "float", odd: "bool", ("other", "price"): "text"}
    assert await other.read() == kept
    assert await other.keep(kept) == kept
    assert await one.forget("shop") == 3
    assert await other.read() == {("other", "price"): "text"}


async def test_the_number_of_fields_is_limited(store: RedisStore, keys: CrawlKeys) -> None:
    types = FieldTypes(store, keys)
    many = {("words", str(number)): "int" for number in range(MOST_FIELDS + 10)}
    assert len(await types.keep(many)) == MOST_FIELDS
    assert await types.keep({("words", "0"): "float", ("shop", "new"): "int"}) == {("words", "0"): "float"}
    assert await types.keep({("shop", "x" * (LONGEST_FIELD + 1)): "int"}) == {}
    assert await ask(store, "HLEN", keys.types) == MOST_FIELDS


async def test_nothing_to_keep_costs_no_call(store: RedisStore, keys: CrawlKeys) -> None:
    counting = CountingStore(store)
    assert await FieldTypes(counting, keys).keep({}) == {}
    assert not counting.calls
