"""Values in JSON-LD: where they are found, and what hostile JSON-LD costs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from crawler.parse.extraction import json_ld_of, values_at
from crawler.parse.tree import parse

PRODUCT = b"""<script type="Application/LD+json">
{"@context": "https://schema.org", "@graph": [
  {"@type": "WebPage", "name": "page"},
  {"@type": ["https://schema.org/Product", "Thing"], "name": "Lamp", "sku": 7, "image": ["a.png", {"@value": "b.png"}],
   "description": "two
lines", "offers": [{"@type": "Offer", "price": "9.99"}, {"@type": "Offer", "price": "8.99"}]}]}
</script>"""


def at(body: bytes, path: str) -> list[Any]:
    return values_at(json_ld_of(parse(body, "utf-8")), path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("Product.name", ["Lamp"]),
        ("Product.sku", [7]),
        ("Product.image", ["a.png", "b.png"]),
        ("Product.offers.price", ["9.99", "8.99"]),
        ("Offer.price", ["9.99", "8.99"]),
        ("Product.description", ["two lines"]),
        ("Product.missing.price", []),
        ("Product.name.price", []),
        ("Person", []),
    ],
)
def test_a_path_leads_to_the_values(path: str, found: list[Any]) -> None:
    assert at(PRODUCT, path) == found


def test_an_empty_path_leads_to_the_objects_at_the_top() -> None:
    assert [one["name"] for one in at(PRODUCT, "")] == ["page", "Lamp"]


@pytest.mark.parametrize(
    "part",
    [b"{", b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b'{"@type":"Product","name":NaN}', b"9" * 9_999, b""],
)
def test_a_part_that_cannot_be_read_is_left_out(part: bytes) -> None:
    assert at(b'<script type="application/ld+json">' + part + b"</script>" + PRODUCT, "Product.name") == ["Lamp"]


@pytest.mark.parametrize(
    "part",
    [
        b"[" + b'{"@type":"Product"},' * 40_000 + b"1]",
        b'{"@type":"Product","x":[' + b"[]," * 250_000 + b"1]}",
        b'{"@type":"Product","x":' * 900 + b"[" + b"1," * 300_000 + b"1]" + b"}" * 900,
    ],
)
def test_hostile_json_ld_takes_little_time(part: bytes) -> None:
    document = parse(b'<script type="application/ld+json">' + part + b"</script>", "utf-8")
    since = time.thread_time()
    assert len(values_at(json_ld_of(document), "Product.x.x")) <= 20_000
    assert time.thread_time() - since < 1.0
