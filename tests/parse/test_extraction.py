"""Items by rules, and what a page can do about it: nothing but give wrong values, which are reported."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import pytest

from crawler.parse import extraction
from crawler.parse.extraction import Extraction, ExtractionJob, FieldReport, NotOfType, converted, json_ld_of, values_at
from crawler.parse.tags import TakesLong
from crawler.parse.tree import parse
from crawler.scope.extract_rules import ExtractRule, FieldRule, FieldType

PAGE = b"""<html lang=en><base href="/shop/"><title>T</title><h1>  The
   Lamp </h1><p class=price>&pound;51.77</p><img class=main src="1.png">
<script type="application/ld+json">{"@type": "Product", "sku": "L-1", "offers": {"price": 51.77}}</script>
<ul><li class=tag>red</li><li class=tag>big</li></ul><i data-n=3>x</i> id: 4711;"""


def run(rule: ExtractRule, body: bytes = PAGE, is_inline: bool = False) -> Extraction:
    return job(rule).run(body, is_inline)


def job(rule: ExtractRule) -> ExtractionJob:
    facts = {"url": "https://a.test/p/1", "status": 200, "title": None}
    return ExtractionJob((rule,), "https://a.test/p/1", "utf-8", "", facts, 1 << 24)


def rule(*fields: FieldRule, **more: Any) -> ExtractRule:
    return ExtractRule("products", fields, **more)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (FieldRule("f", css="h1"), "The Lamp"),
        (FieldRule("f", css=".price", type="decimal"), 51.77),
        (FieldRule("f", css="img.main", attr="src", type="url"), "https://a.test/shop/1.png"),
        (FieldRule("f", css=".tag", list=True), ["red", "big"]),
        (FieldRule("f", css="[data-n]", attr="data-n", type="int"), 3),
        (FieldRule("f", json_ld="Product.sku"), "L-1"),
        (FieldRule("f", json_ld="Product.offers.price", type="decimal"), 51.77),
        (FieldRule("f", json_ld="Product.sku", regex=r"L-(\d)", type="int"), 1),
        (FieldRule("f", regex=r"id: (\d+)", type="int"), 4711),
        (FieldRule("f", regex=r"class=(\w+)", list=True), ["price", "main", "tag", "tag"]),
    ],
)
def test_each_source_gives_its_value(field: FieldRule, value: Any) -> None:
    (item,) = run(rule(field)).items
    assert (item.name, item.fields) == ("products", {"f": value})


def test_what_is_known_and_constant_goes_with_what_is_found() -> None:
    fields = (FieldRule("url", page="url", type="url"), FieldRule("shop", value="a"), FieldRule("h", css="h1"))
    none = (FieldRule("none", css="h9"), FieldRule("nones", css="h9", list=True))
    (item,) = run(rule(*fields, *none)).items
    expected = {"url": "https://a.test/p/1", "shop": "a", "h": "The Lamp", "none": None, "nones": []}
    assert item.fields == expected


def test_a_page_with_none_of_the_fields_is_another_kind_of_page() -> None:
    fields = (FieldRule("url", page="url"), FieldRule("h", css="h9", required=True))
    assert run(rule(*fields)) == Extraction()


def test_each_element_is_an_item() -> None:
    fields = (
        FieldRule("name"),
        FieldRule("class", attr="class"),
        FieldRule("bold", css="b"),
        FieldRule("u", page="url"),
    )
    found = run(rule(*fields, each="li"), b"<b>no</b><ul><li class=a>x <b>y</b><li>z<li></ul>")
    assert [item.fields for item in found.items] == [
        {"name": "x y", "class": "a", "bold": "y", "u": "https://a.test/p/1"},
        {"name": "z", "class": None, "bold": None, "u": "https://a.test/p/1"},
    ]
    assert not found.rejected_count


@pytest.mark.parametrize(
    ("field", "told"),
    [
        (FieldRule("sku", css="h9", required=True), "products.sku: missing"),
        (FieldRule("price", css="h1", type="decimal"), "products.price: type 'The Lamp'"),
        (FieldRule("offer", json_ld="Product.offers"), "products.offer: type '(dict)'"),
        (FieldRule("n", css=".tag", list=True, type="int"), "products.n: type 'red'"),
        (FieldRule("long", regex="(?:a|a)+c"), "products.long: unread"),
    ],
)
def test_an_item_that_is_not_as_the_rule_says_is_rejected_as_a_whole(field: FieldRule, told: str) -> None:
    found = run(rule(FieldRule("h", css="h1"), field), PAGE + b"<!--" + b"a" * 3_000 + b"!-->c")
    assert (found.items, [str(one) for one in found.rejected], found.rejected_count) == ((), [told], 1)


def test_items_beyond_the_limits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extraction, "MAX_ITEMS", 3)
    found = run(rule(FieldRule("x"), each="li"), b"<li>x" * 100)
    assert (len(found.items), len(found.rejected), found.rejected_count) == (3, 4, 4)
    assert str(found.rejected[-1]) == "products: size"


DEEP = b"<div class=b>" * 20_000
HOSTILE = {
    "deep": (DEEP, rule(FieldRule("x", css="div.a div.b"))),
    "deep items": (DEEP, rule(FieldRule("x"), each="div")),
    "wide": (b"<q>x</q>" * 20_000, rule(FieldRule("x", css="q ~ q.z"), each="q")),
    "many fields": (b"<q>x</q>" * 20_000, rule(*(FieldRule(f"f{n}", css="b") for n in range(300)), each="q")),
    "regex": (b"<p>" + b"a" * 150_000, rule(FieldRule("x", css="p", regex="(a+)+[bc]"))),
    "source": (b"<p>" + b"a" * 150_000 + b"b", rule(FieldRule("x", regex="a*a*a*[cd]|[^a]z", list=True))),
    "many matches": (b"a" * 150_000, rule(FieldRule("x", regex="a(?=[a]*)", list=True))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_page_holds_up_the_event_loop(name: str) -> None:
    """The others are left to the process for large documents."""
    body, hostile = HOSTILE[name]
    since = time.thread_time()
    with contextlib.suppress(TakesLong):
        run(hostile, body, is_inline=True)
    assert time.thread_time() - since < 0.5  # ten times what it takes on a free machine


OPEN = "".join(f"<b a{number}><p>" for number in range(1_990))


@pytest.mark.parametrize("body", [OPEN.encode(), OPEN.encode("utf-16")], ids=["UTF-8", "UTF-16"])
def test_a_page_of_many_open_formatting_elements_is_left_to_the_process(body: bytes) -> None:
    with pytest.raises(TakesLong):
        run(rule(FieldRule("x", css="b")), body, is_inline=True)
    few = b"<p><b>x</b>" * 400 + b"<p>" * 1_000
    assert len(run(rule(FieldRule("x", css="b"), each="p"), few, is_inline=True).items) == 400


@pytest.mark.parametrize("name", HOSTILE)
def test_a_report_takes_no_longer(name: str) -> None:
    body, hostile = HOSTILE[name]
    since = time.thread_time()
    with contextlib.suppress(TakesLong):
        job(hostile).report(body)
    assert time.thread_time() - since < 0.5


def test_a_report_counts_what_became_of_each_field() -> None:
    body = b"<li>1<b>x</b></li><li>one</li><li>2</li>"
    fields = (FieldRule("n", type="int", regex="^[^x]*"), FieldRule("b", css="b", list=True), FieldRule("i", css="i"))
    report = job(rule(*fields, each="li")).report(body)
    assert (report.elements, report.items) == (3, 2)
    assert report.fields["n"] == FieldReport(found=2, unusable=1, reason="type", value="one")
    assert (report.fields["b"], report.fields["i"]) == (FieldReport(found=1, missing=2), FieldReport(missing=3))


@pytest.mark.parametrize("is_inline", [False, True])
def test_an_expression_is_found_wherever_in_a_page_it_is(is_inline: bool) -> None:
    priced = rule(FieldRule("price", regex=r"price: (\d+)"))
    for words in (10, 200, 2_000, 20_000):
        found = run(priced, b"<p>some words: here</p>" * words + b"price: 42", is_inline)
        assert [item.fields for item in found.items] == [{"price": "42"}], words
        assert run(priced, b"<p>some words: here, price: none</p>" * words, is_inline).rejected_count == 0


def test_empty_matches_take_no_more_time_than_others() -> None:
    with pytest.raises(TakesLong):
        run(rule(FieldRule("price", regex=r"price: (\d*)")), b"price: " * 1_000_000, is_inline=True)


BASE = "https://shop.test/a/"


@pytest.mark.parametrize(
    ("value", "wanted", "result"),
    [
        ("12", "int", 12),
        ("1,234 reviews", "int", 1234),
        ("In stock (22 available)", "int", 22),
        ("-7", "int", -7),
        ("SKU-5", "int", 5),
        (7.0, "int", 7),
        ("£51.77", "decimal", 51.77),
        ("EUR 1,234.50", "decimal", 1234.5),
        ("1 234.50", "decimal", 1234.5),
        ("\u22123.5 °C", "decimal", -3.5),
        ("1e3", "decimal", 1000.0),
        (3, "decimal", 3.0),
        ("1.234,50 €", "decimal_comma", 1234.5),
        ("51,77", "decimal_comma", 51.77),
        ("Yes", "bool", True),
        (False, "bool", False),
        ("../img/1.png?utm_source=x#top", "url", "https://shop.test/img/1.png?utm_source=x"),
        ("2026-03-04", "date", "2026-03-04"),
        ("2026-03-04T10:00:00Z", "date", "2026-03-04T10:00:00+00:00"),
        ("Wed, 04 Mar 2026 10:00:00 GMT", "date", "2026-03-04T10:00:00+00:00"),
        ("March 4, 2026", "date", "2026-03-04"),
        ("4 Mar 2026", "date", "2026-03-04"),
        (True, "text", "true"),
        (5, "text", "5"),
    ],
)
def test_a_text_with_one_meaning_is_converted(value: Any, wanted: FieldType, result: Any) -> None:
    found = converted(value, wanted, BASE)
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("1.234", "int"),
        ("10-20", "int"),
        ("1,23", "decimal"),
        ("1.234.567", "decimal"),
        ("1,234.50", "decimal_comma"),
        ("from 5 to 6", "decimal"),
        ("free", "decimal"),
        ("1" * 50, "decimal"),
        ("1" * 50, "int"),
        ("9" * 10_000, "int"),
        ("٣", "bool"),
        (True, "int"),
        (1 << 70, "int"),
        (10**400, "decimal"),
        (float("-inf"), "decimal"),
        (float("nan"), "decimal"),
        ("maybe", "bool"),
        ("javascript:alert(1)", "url"),
        (5, "url"),
        ("03/04/2026", "date"),
        ("yesterday", "date"),
        ("1" * 1_000, "date"),
        ({"a": 1}, "text"),
        ([1], "decimal"),
    ],
)
def test_a_text_with_two_meanings_or_none_is_refused(value: Any, wanted: FieldType) -> None:
    with pytest.raises(NotOfType):
        converted(value, wanted, BASE)


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
