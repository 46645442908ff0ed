"""Items by rules, and what a page can do about it: nothing but give wrong values, which are reported."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import msgspec
import pytest

from crawler.parse import extraction
from crawler.parse.extraction import Extraction, ExtractionJob, FieldReport
from crawler.parse.structured import json_ld_of, microdata_of, values_at
from crawler.parse.tags import TakesLong
from crawler.parse.tree import parse
from crawler.scope.extract_rules import ExtractRule, FieldRule

PAGE = b"""<html lang=en><base href="/shop/"><title>T</title><h1>  The
   Lamp </h1><p class=price>&pound;51.77</p><img class=main src="1.png">
<script type="application/ld+json">{"@type": "Product", "sku": "L-1", "offers": {"price": 51.77}}</script>
<ul><li class=tag>red</li><li class=tag>big</li></ul><i data-n=3>x</i> id: 4711;"""


def run(rule: ExtractRule, body: bytes = PAGE, is_inline: bool = False) -> Extraction:
    return job(rule).run(body, is_inline)


def job(rule: ExtractRule, content_type: str = "text/html") -> ExtractionJob:
    facts = {"url": "https://a.test/p/1", "status": 200, "title": None}
    return ExtractionJob((rule,), "https://a.test/p/1", content_type, "utf-8", "", facts, 1 << 24)


def rule(*fields: FieldRule, **more: Any) -> ExtractRule:
    return ExtractRule("products", fields, **more)


@pytest.mark.parametrize(
    ("field", "text"),
    [
        (FieldRule("f", css=".price", type="decimal"), "<h1>A</h1><p class=price>1299.00</p>"),
        (FieldRule("f", css=".price", list=True), "<h1>A</h1><p class=price>1299.00</p>"),
        (FieldRule("f", regex=r"([\d.]+)", type="decimal"), "<p>1299.00</p>"),
        (FieldRule("f", regex=r"id: (\d+)", type="int"), "name: Lamp\nid: 1299\n"),
        (FieldRule("f", json_ld="Offer.price"), '<script type="application/ld+json">{"@type": "Offer", "price": 1299}'),
    ],
)
def test_no_value_is_taken_from_where_a_body_was_cut_off(field: FieldRule, text: str) -> None:
    torn = msgspec.structs.replace(job(rule(field)), is_torn=True)
    for end in range(text.index("1299") + 1, text.index("1299") + 4):
        assert not any(item.fields["f"] for item in torn.run(text[:end].encode()).items)
    assert torn.run(PAGE + b"\n<p>").items == job(rule(field)).run(PAGE).items


def test_the_whole_lines_of_a_text_that_was_cut_off_are_read() -> None:
    lines = rule(FieldRule("f", regex=r"(\w+: \w+)", list=True))
    (item,) = msgspec.structs.replace(job(lines), is_torn=True).run(b"name: Lamp\nid: 12").items
    assert item.fields == {"f": ["name: Lamp"]}


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


@pytest.mark.parametrize(
    ("markup", "text", "number"),
    [
        ("5<br>10115", "5 10115", None),
        ("<div>30</div><div>20</div>", "30 20", None),
        ("<li>12</li><li>345</li>", "12 345", None),
        ("<dt>1<dd>100", "1 100", None),
        ("19<sup>99</sup> &euro;", "19 99 €", None),
        ("&euro;19<span class=cents>99</span>", "€1999", None),
        ("1<b>234</b>", "1234", None),
        ("<span>14</span><span>.</span><span>99</span>", "14.99", 14.99),
        ("4<!-- a comment -->2", "42", 42.0),
        ("120 m<sup>2</sup>", "120 m2", None),
        ("120 m²", "120 m²", 120.0),
        ("In stock<br>22", "In stock 22", 22.0),
        ("7<script>8</script><style>9</style><template>1</template><noscript>2</noscript>", "7", 7.0),
    ],
)
def test_parts_of_a_page_that_are_apart_are_not_one_value(markup: str, text: str, number: float | None) -> None:
    body = f"<div class=v>{markup}</div>".encode()
    (item,) = run(rule(FieldRule("v", css=".v")), body).items
    assert item.fields == {"v": text}
    found = run(rule(FieldRule("v", css=".v", type="decimal")), body)
    assert [item.fields["v"] for item in found.items] == ([] if number is None else [number])
    assert found.rejected_count == (number is None)


FEED = b"""<?xml version="1.0"?><rss xmlns:dc="http://purl.org/dc/elements/1.1/"><channel>
<item><title>A &amp; B &ndash; C & D</title><link>https://a.test/1</link><dc:creator>Ann</dc:creator>
<pubDate>Wed, 04 Mar 2026 10:00:00 GMT</pubDate><description><![CDATA[<p>1 & 2</p>]]></description></item>
<item><title>Two</title><link>https://a.test/2</link></item></channel></rss>"""


def test_a_feed_is_read_as_xml() -> None:
    fields = (
        FieldRule("title", css="title"),
        FieldRule("link", css="link", type="url"),
        FieldRule("by", css=r"dc\:creator"),
        FieldRule("at", css="pubDate", type="date"),
        FieldRule("text", xpath="description"),
    )
    found = job(rule(*fields, each="item"), "application/rss+xml").run(FEED)
    one = {"title": "A & B – C & D", "link": "https://a.test/1", "by": "Ann", "text": "<p>1 & 2</p>"}
    two = dict.fromkeys(("by", "at", "text")) | {"title": "Two", "link": "https://a.test/2"}
    assert [item.fields for item in found.items] == [one | {"at": "2026-03-04T10:00:00+00:00"}, two]


def test_xml_that_is_not_well_formed_is_said() -> None:
    broken = job(rule(FieldRule("t", css="title")), "text/xml")
    assert broken.run(b"<a><title>x</a>").rejected_by == {"products::unread": 1}
    assert broken.report(b"<a><title>x</a>").unread == ["the page is not well-formed XML"]
    source = job(rule(FieldRule("t", regex="<title>(.)")), "text/xml")
    assert [item.fields for item in source.run(b"<a><title>x</a>").items] == [{"t": "x"}]


MARKED = b"""<base href="/shop/"><div itemscope itemtype="https://schema.org/Product"><h1 itemprop=name>Lamp</h1>
<a itemprop=url href="1">x</a><div itemprop=offers itemscope itemtype="https://schema.org/Offer">
<meta itemprop=price content=9.50></div></div>
<div vocab="https://schema.org/" typeof="Product"><b property="name">Chair</b><i property="sku" content="C-1">x</i></div>"""


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (FieldRule("f", microdata="Product.name"), "Lamp"),
        (FieldRule("f", microdata="Product.offers.price", type="decimal"), 9.5),
        (FieldRule("f", microdata="Product.url", type="url"), "https://a.test/shop/1"),
        (FieldRule("f", rdfa="Product.name"), "Chair"),
        (FieldRule("f", rdfa="Product.sku"), "C-1"),
        (FieldRule("f", xpath="//h1"), "Lamp"),
        (FieldRule("f", xpath="//h1/text()"), "Lamp"),
        (FieldRule("f", xpath="//a/@href", type="url"), "https://a.test/shop/1"),
        (FieldRule("f", xpath="//h1 | //b", list=True), ["Lamp", "Chair"]),
        (FieldRule("f", xpath="//i", attr="content"), "C-1"),
        (FieldRule("f", xpath="count(//div)", type="int"), 3),
        (FieldRule("f", xpath="string(//b)"), "Chair"),
    ],
)
def test_microdata_rdfa_and_xpath_are_sources(field: FieldRule, value: Any) -> None:
    (item,) = run(rule(field), MARKED).items
    assert item.fields == {"f": value}


def test_an_object_of_rdfa_may_be_within_the_element_of_its_relation() -> None:
    body = b"""<div vocab="https://schema.org/" typeof=Product><i property=name>A</i>
        <div rel=offers><div typeof=Offer><b property=price>7</b></div></div></div>"""
    found = run(
        rule(FieldRule("f", rdfa="Product.offers.price", type="int"), FieldRule("g", css="[property=offers]")), body
    )
    assert [item.fields for item in found.items] == [{"f": 7, "g": None}]


def test_items_that_contain_themselves_are_left_out() -> None:
    body = b"<div itemscope itemref=a></div><p id=a itemprop=p itemscope itemref=a>x</p>"
    assert run(rule(FieldRule("f", microdata="Product.name")), body) == Extraction()


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
        (FieldRule("sku", css="h9", required=True), "products: sku: missing"),
        (FieldRule("price", css="h1", type="decimal"), "products: price: type 'The Lamp'"),
        (FieldRule("offer", json_ld="Product.offers"), "products: offer: type '(dict)'"),
        (FieldRule("n", css=".tag", list=True, type="int"), "products: n: type 'red'"),
        (FieldRule("long", regex="(?:a|a)+c"), "products: long: unread"),
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


OPEN = "<p>" + "".join(f"<b a{number}>" for number in range(100)) + "<p>x" * 100


def test_a_page_of_many_open_formatting_elements_is_left_to_the_process() -> None:
    """What takes a time that grows with the square of the elements: 200 tags make 10,000 here."""
    for field in (FieldRule("x", xpath="//b"), FieldRule("x", css="p:has(b)"), FieldRule("x", microdata="A.b")):
        with pytest.raises(TakesLong):
            run(rule(field), OPEN.encode(), is_inline=True)
    assert len(run(rule(FieldRule("x", css="p + p")), OPEN.encode(), is_inline=True).items) == 1
    few = b"<p><b>x</b>" * 300
    assert len(run(rule(FieldRule("x", xpath="b"), each="p"), few, is_inline=True).items) == 300


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


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("<b>1</b> <b>299</b>", None),
        ("1<b>&nbsp;</b>299", None),
        ("<b>5</b> <i>128 GB</i>", None),
        ("1 299", 1299),
        ("<b>1 299</b> €", 1299),
        ("<b>$</b> 1 299", 1299),
        ("<i>-</i><b>$</b>5", -5),
    ],
)
def test_the_groups_of_a_number_are_in_one_text(text: str, value: int | None) -> None:
    found = run(rule(FieldRule("n", css="p", type="int")), f"<p>{text}</p>".encode())
    assert [item.fields["n"] for item in found.items] == ([] if value is None else [value])


PRODUCT = b"""<script type="Application/LD+json">
{"@context": "https://schema.org", "@graph": [
  {"@type": "WebPage", "name": "page"},
  {"@type": ["https://schema.org/Product", "Thing"], "name": "Lamp", "sku": 7, "image": ["a.png", {"@value": "b.png"}],
   "description": "two
lines", "offers": [{"@type": "Offer", "price": "9.99"}, {"@type": "Offer", "price": "8.99"}]}]}
</script>"""


def at(body: bytes, path: str) -> list[Any]:
    return values_at(json_ld_of(parse(body, "utf-8")).values, path)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("Product.name", ["Lamp"]),
        ("Product.sku", [7]),
        ("Product.image", ["a.png", "b.png"]),
        ("Product.offers.price", ["9.99", "8.99"]),
        ("Offer.price", ["9.99", "8.99"]),
        ("Product.description", ["two\nlines"]),
        ("Product.missing.price", []),
        ("Product.name.price", []),
        ("Person", []),
    ],
)
def test_a_path_leads_to_the_values(path: str, found: list[Any]) -> None:
    assert at(PRODUCT, path) == found


def product_of(body: str) -> dict[str, Any]:
    """The fields of the product on the page `body`, from its JSON-LD or microdata."""
    found = run(
        rule(
            *(FieldRule(f"j{key}", json_ld=f"Product.{path}") for key, path in PATHS.items()),
            *(FieldRule(f"m{key}", microdata=f"Product.{path}") for key, path in PATHS.items()),
        ),
        body.encode(),
    )
    return {name[1:]: value for item in found.items for name, value in item.fields.items() if value is not None}


PATHS = {"sku": "sku", "price": "offers.price", "currency": "offers.priceCurrency"}


def script_of(json: str) -> str:
    return f'<script type="application/ld+json">{json}</script>'


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (  # the product is sold out, and has a related one
            script_of(
                '{"@type": "Product", "isRelatedTo": {"@type": "Product", "sku": "B", "offers": {"price": 9}}, "sku": "A"}'
            ),
            {"sku": "A"},
        ),
        (  # and another one follows
            script_of('[{"@type": "Product", "sku": "A"}, {"@type": "Product", "offers": {"price": 9}}]'),
            {"sku": "A"},
        ),
        (  # a list of others comes first
            script_of('{"@type": "ItemList", "itemListElement": [{"item": {"@type": "Product", "sku": "B"}}]}')
            + script_of('{"@graph": [{"@type": "WebPage", "mainEntity": {"@type": "Product", "sku": "A"}}]}'),
            {"sku": "A"},
        ),
        (  # the offer is elsewhere
            script_of(
                '{"@graph": [{"@type": "Product", "sku": "A", "offers": {"@id": "#o"}}, {"@id": "#o", "price": 5},'
                '{"@type": "Product", "sku": "B", "offers": {"price": 9}}]}'
            ),
            {"sku": "A", "price": "5"},
        ),
        (  # two have the same name
            script_of(
                '[{"@type": "Product", "sku": "A", "offers": {"@id": "#o"}},'
                '{"@id": "#o", "price": 5}, {"@id": "#o", "price": 6}]'
            ),
            {"sku": "A"},
        ),
        (  # the first offer has no price, the second no currency
            script_of('{"@type": "Product", "offers": [{"priceCurrency": "EUR"}, {"price": 7}]}'),
            {"currency": "EUR"},
        ),
        (
            '<div itemscope itemtype="https://schema.org/Product"><meta itemprop=sku content=A><div itemprop=isRelatedTo'
            ' itemscope itemtype="https://schema.org/Product"><div itemprop=offers itemscope><b itemprop=price>3</b></div>'
            "</div></div>",
            {"sku": "A"},
        ),
    ],
)
def test_the_fields_of_an_item_are_of_one_object(body: str, fields: dict[str, Any]) -> None:
    assert product_of(body) == fields


@pytest.mark.parametrize(
    ("data", "path", "values"),
    [
        (
            '[{"@type": "Product", "image": ["a", "b"]}, {"@type": "Product", "image": "c"}]',
            "Product.image",
            ["a", "b"],
        ),
        ('[{"@type": "Product", "name": "A"}, {"@type": "Product", "price": 3}]', "Product.price", []),
        ('{"@graph": [{"@type": "Product", "x": 1}, {"@type": "Product", "x": 2}]}', "Product.x", [1]),
        ('{"offers": [{"@type": "Offer", "price": 1}, {"@type": "Offer", "price": 2}]}', "Offer.price", [1, 2]),
        ('{"a": {"@type": "X", "n": 1}, "b": [{"@type": "X", "n": 2}]}', "X.n", [1]),
        ('[{"@type": "Product", "name": "A"}, {"@type": "Product", "name": "B"}]', "Product", None),
    ],
)
def test_a_list_has_the_values_of_one_object(data: str, path: str, values: list[Any] | None) -> None:
    body = script_of(data).encode()
    assert at(body, path) == (json.loads(data) if values is None else values)
    if values is not None:
        found = run(rule(FieldRule("v", json_ld=path, list=True)), body).items
        assert [item.fields["v"] for item in found] == ([list(map(str, values))] if values else [])


@pytest.mark.parametrize(
    ("price", "value"),
    [
        ('<span itemprop=price content="1299.00">1.299 EUR</span>', "1299.00"),
        ('<span itemprop=price content="">5</span>', "5"),
        ('<data itemprop=price value="5" content="6">7</data>', "5"),
        ('<time itemprop=price content="6">7</time>', "6"),
    ],
)
def test_the_content_of_microdata_may_be_an_attribute(price: str, value: str) -> None:
    body = f'<div itemscope itemtype="https://schema.org/Product"><p itemprop=offers itemscope>{price}</p></div>'
    assert product_of(body) == {"price": value}
    document = parse(body.encode(), "utf-8")
    html = document.html
    microdata_of(document, "https://a.test/")
    assert document.html == html


@pytest.mark.parametrize(
    ("markup", "text", "price"),
    [
        ("19<sup>99</sup>", "19 99", None),
        ("19<br>99", "19 99", None),
        ("<s>1</s>299", "1299", None),
        ("<b>19</b>.99 <small>EUR</small>", "19.99 EUR", 19.99),
        ("<p>one</p><p>two</p>", "one two", None),
        ("A<script>var x = 1</script><style>p{}</style><noscript>B</noscript>", "A", None),
    ],
)
@pytest.mark.parametrize("kind", ["css", "microdata", "rdfa"])
def test_texts_of_elements_are_read_alike_in_all_kinds_of_markup(
    kind: str, markup: str, text: str, price: float | None
) -> None:
    body = (
        '<div itemscope itemtype="https://schema.org/Product" vocab="https://schema.org/" typeof=Product>'
        f"<p>7</p><div class=price itemprop=price property=price>{markup}</div></div>"
    ).encode()
    source = ".price" if kind == "css" else "Product.price"
    fields = (FieldRule("text", **{kind: source}), FieldRule("price", type="decimal", **{kind: source}))
    assert [item.fields for field in fields for item in run(rule(field), body).items] == [
        {"text": text},
        *([{"price": price}] if price else []),
    ]


@pytest.mark.parametrize(
    ("markup", "regex", "value"),
    [
        ("19<sup>99</sup>", r"([\d.,]+)", None),
        ("1 299,00", r"[\d.,]+", None),
        ("3,5 kg", r"(\d+) kg", None),
        ("12.99", r"^\d+", None),
        ("3 rooms, 120 m", r"(\d+) m", 120.0),
        ("3 120 m", r"\d+ (\d+) m", 120.0),
        ("from 5 to 6", r"\d+", 5.0),
    ],
)
def test_a_match_is_a_whole_number_or_none(markup: str, regex: str, value: float | None) -> None:
    found = run(rule(FieldRule("v", css="p", regex=regex, type="decimal")), f"<p>{markup}</p>".encode())
    assert [item.fields["v"] for item in found.items] == ([] if value is None else [value])


@pytest.mark.parametrize("xpath", ["string(//p)", "normalize-space(//b[.='Price']/../p)"])
def test_a_string_of_xpath_has_the_digits_of_elements_apart(xpath: str) -> None:
    field = FieldRule("v", xpath=xpath, type="decimal")
    for markup, value in (("19<sup>99</sup>", []), ("<i>19</i>.99", [19.99])):
        found = run(rule(field), f"<div><b>Price</b><p>{markup}</p></div>".encode())
        assert [item.fields["v"] for item in found.items] == value


def test_an_item_has_no_values_of_one_within_it() -> None:
    fields = (FieldRule("n", css="b"), FieldRule("p", css="i", type="int"), FieldRule("all", css="b", list=True))
    found = run(rule(*fields, each=".it"), b"<div class=it><b>A</b><div class=it><b>B</b><i>5</i></div><b>C</b></div>")
    assert [item.fields for item in found.items] == [
        {"n": "A", "p": None, "all": ["A", "C"]},
        {"n": "B", "p": 5, "all": ["B"]},
    ]


@pytest.mark.parametrize("end", ["}", ",}"])
def test_large_numbers_keep_their_digits(end: str) -> None:
    assert product_of(script_of('{"@type": "Product", "sku": 12345678901234567890123' + end)) == {
        "sku": "12345678901234567890123"
    }


def test_an_empty_path_leads_to_the_objects_at_the_top() -> None:
    assert [one["name"] for one in at(PRODUCT, "")] == ["page", "Lamp"]


@pytest.mark.parametrize(
    "part",
    [b"{", b"[" * 100_000, b'{"a":' * 50_000, b'"\\ud800"', b"9" * 9_999, b""],
)
def test_a_part_that_cannot_be_read_is_left_out(part: bytes) -> None:
    assert at(b'<script type="application/ld+json">' + part + b"</script>" + PRODUCT, "Product.name") == ["Lamp"]


def test_deep_objects_of_one_name_are_compared() -> None:
    for depth in range(900, 1_000):
        deep = ('{"y":' * depth + f"{leaf}" + "}" * depth for leaf in (1, 2))
        named = ",".join(f'{{"@id": "#o", "x": {one}}}' for one in deep)
        assert at(script_of(f'[{{"@type": "Product", "x": {{"@id": "#o"}}}}, {named}]').encode(), "Product.x.x") == []


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
    assert len(values_at(json_ld_of(document).values, "Product.x.x")) <= 20_000
    assert time.thread_time() - since < 1.0


TEA = '{"@type": "Product", "name": "Tea", "offers": {"price": "4.50"}}'


@pytest.mark.parametrize(
    ("script", "name"),
    [
        (TEA.replace("Tea", "Te\na"), "Te\na"),
        (TEA + ";", "Tea"),
        (f"<!-- {TEA} -->", "Tea"),
        (f"<!-- Our tea. -->\n{TEA}", "Tea"),
        (f"//<![CDATA[\n{TEA}\n//]]>", "Tea"),
        (f"<![CDATA[{TEA}]]>", "Tea"),
        (f"/* <![CDATA[ */{TEA}/* ]]> */", "Tea"),
        (f"// product\n{TEA}", "Tea"),
        (TEA[:-1] + ",}", "Tea"),
        (TEA[:-2] + ", /* no more */ }}", "Tea"),
        (f"\ufeff{TEA}", "Tea"),
        (TEA.replace("Tea", "Tea \\ud83d"), "Tea ?"),
        (TEA.replace('"4.50"', "NaN"), "Tea"),
        (TEA.replace("Tea", "a,} // b /* c"), "a,} // b /* c"),
        (TEA.replace("Tea", "a,} // b").replace("4.50", '4.50",},"x":{"y":"'), "a,} // b"),
    ],
)
def test_json_ld_is_read_as_leniently_as_others_read_it(script: str, name: str) -> None:
    body = f'<script type="application/ld+json">{script}</script>'.encode()
    assert at(body, "Product.name") == [name]
    (item,) = run(rule(FieldRule("name", json_ld="Product.name")), body).items
    assert item.fields == {"name": " ".join(name.split())}


def test_a_report_says_where_json_ld_cannot_be_read() -> None:
    two = f'<script type="application/ld+json">{TEA}{TEA}</script>'.encode()
    good = f'<script type="application/ld+json">{TEA}</script>'.encode()
    report = job(rule(FieldRule("name", json_ld="Product.name"))).report(good + two)
    assert report.items == 1
    (said,) = report.unread
    assert said.startswith("JSON-LD not read, script 2 of 2: Extra data, at ")


@pytest.mark.parametrize("part", ["/*", '"', "//", "<!--", "<!-- ", ", ", '"\\', "[{"])
def test_lenient_reading_takes_little_time(part: str) -> None:
    document = parse(f'<script type="application/ld+json">{part * 250_000}</script>'.encode(), "utf-8")
    since = time.thread_time()
    found = json_ld_of(document)
    assert (found.values, len(found.unread)) == ([], 1)
    assert time.thread_time() - since < 1.0
