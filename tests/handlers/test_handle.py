"""What handlers may ask for, and which function handles a page."""

from __future__ import annotations

import gzip
import tracemalloc
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from yarl import URL

from crawler import Handle, Link, Outcome, Page, ParsedPage, Request, Router, UserError
from crawler.handlers.requests import Files, KnownAnswers, VisitRequests
from crawler.handlers.router import Handler, load_router
from crawler.hooks import Wanted
from tests.sinks.values import exchange, page

ROOT = Path(__file__).parents[2]


async def test_items_and_links_are_collected_with_and_without_await() -> None:
    @dataclass
    class Offer:
        price: float
        since: date

    handle = Handle()
    handle.push("offers", [Offer(9.5, date(2026, 1, 2))])
    await handle.push("other.offers", {"price": None})
    await handle.enqueue(["/a", Link("https://a.test/b")], priority=5)
    handle.enqueue("/c")
    handle.drop(r"/login")
    asked = handle.result()
    assert [(item.name, item.fields) for item in asked.items] == [
        ("offers", {"price": 9.5, "since": "2026-01-02"}),
        ("other.offers", {"price": None}),
    ]
    assert asked.added == (Wanted("/a", 5), Wanted("https://a.test/b", 5), Wanted("/c", None))
    assert [pattern.pattern for pattern in asked.dropped] == ["/login"]


@pytest.mark.parametrize(
    ("name", "item", "error"),
    [
        ("../etc", {}, ValueError),
        ("", {}, ValueError),
        ("ok", ["no", "object"], ValueError),
        ("ok", [{"a": 1}, None], ValueError),
        ("ok", {"what": object()}, TypeError),
        ("ok", {"huge": "x" * (9 << 20)}, ValueError),
    ],
)
def test_an_item_that_cannot_be_written_is_refused_at_once(name: str, item: object, error: type[Exception]) -> None:
    handle = Handle()
    with pytest.raises(error):
        handle.push(name, item)
    assert handle.result().items == ()


def test_the_rows_of_a_table_are_items() -> None:
    found = ParsedPage.of(page(exchange("a", b"a;b\r\n1;'x\r\ny'\r\n2\r\n3;4;5\r\n")))
    rows = [{"a": "1", "b": "x\r\ny"}, {"a": "2", "b": None}, {"a": "3", "b": "4", "rest": ["5"]}]
    assert found.csv(";", quotechar="'") == rows
    handle = Handle()
    handle.push("rows", found.csv(";", quotechar="'"))
    assert [item.fields for item in handle.result().items] == rows
    named = ParsedPage.of(page(exchange("a", b"rest,b\n1,2,3\n")))
    assert named.csv() == [{"rest": "1", "b": "2", "rest_": ["3"]}]


def test_links_are_taken_in_each_form_and_what_has_none_is_skipped() -> None:
    handle, found = Handle(), ParsedPage.of(page(exchange("a", b"<a href=/1>1</a><a>2</a><i>3</i>")))
    handle.enqueue(found.select("a, i"))
    handle.enqueue(found.select("a")[0])
    handle.enqueue([URL("/4"), None])
    handle.enqueue(URL("/5"))
    handle.enqueue(None)
    assert [link.url for link in handle.result().added] == ["/1", "/1", "/4", "/5"]


@pytest.mark.parametrize("links", [5, b"/a", [b"/a"], [5], {"url": "/a"}, [["/a"]], ["/a", 5]])
def test_what_is_no_link_is_refused_at_once(links: Any) -> None:
    handle = Handle()
    with pytest.raises(TypeError, match="a URL has to be text"):
        handle.enqueue(links)
    assert handle.result().added == ()


@pytest.mark.parametrize(
    ("written", "base"),
    [
        ("<base href='/shop/'>", "https://site.test/shop/"),
        ("<BASE target=_top><base href=../b/><base href=/c/>", "https://site.test/b/"),
        ("<base href='data:,x'>", "https://site.test/a"),
        ("<p>&lt;base href=/x/>", "https://site.test/a"),
    ],
)
def test_the_base_of_a_page_is_that_of_browsers(written: str, base: str) -> None:
    assert ParsedPage.of(page(exchange("a", written.encode()))).base == base


def test_a_list_in_a_form_has_no_none() -> None:
    assert Request("/a", data={"a": [1, None, "b"], "c": None}).request.body == b"a=1&a=b"


@pytest.mark.parametrize("priority", [float("nan"), float("inf"), pytest.param(10**400, id="huge"), -2e11])
def test_a_priority_that_cannot_be_stored_is_refused_at_once(priority: float) -> None:
    handle = Handle()
    with pytest.raises(ValueError, match="from -1e\\+11 to 1e\\+11"):
        handle.enqueue("/a", priority)
    assert handle.result().added == ()


@pytest.mark.parametrize("kind", [200, 4040, 0])
def test_a_status_of_no_failure_is_refused(kind: int) -> None:
    with pytest.raises(UserError, match="a status from 400 to 999"):
        Router().on_failure(kind=kind)


@pytest.mark.parametrize("kind", ["timout", "404", "http_200", "given_up_", "given_up_timout", "robots"])
def test_a_reason_that_no_page_has_is_refused_with_those_that_there_are(kind: str) -> None:
    with pytest.raises(UserError, match=r"reasons are http_STATUS, bad_url, .*timeout") as refused:
        Router().on_failure(kind=kind)
    assert ("did you mean 'timeout'" in str(refused.value)) == (kind == "timout")


def test_settings_that_no_table_fits_are_refused() -> None:
    for schema in (int, list, Handle):
        with pytest.raises(UserError, match=f"a dataclass or a msgspec.Struct, not {schema.__name__}"):
            Router(settings=schema)


@pytest.mark.parametrize("status", [0, 99, "404", [], [404, None], range(400, 1001)])
def test_what_is_no_status_is_refused(status: Any) -> None:
    with pytest.raises(UserError, match="write a status from 200 to 999, a range or a list"):
        Router().handler(status=status)


def handler_of(router: Router, page: Page) -> Handler | None:
    route = router.route_of(page)
    return route and route.function


def test_a_handler_gets_the_statuses_that_it_names() -> None:
    router = Router()

    @router.handler(status=404)
    def missing(page: ParsedPage, crawl: Handle) -> None: ...

    @router.handler(status=range(500, 600))
    def broken(page: ParsedPage, crawl: Handle) -> None: ...

    @router.handler(status=iter([301, 302]))
    def moved(page: ParsedPage, crawl: Handle) -> None: ...

    @router.handler()
    def good(page: ParsedPage, crawl: Handle) -> None: ...

    functions = {404: missing, 503: broken, 302: moved, 200: good, 304: None, 410: None}
    for status, function in functions.items():
        assert handler_of(router, page(exchange("a", b"", status=status))) is function
    dead = page(exchange("a", b"", status=503), outcome=Outcome.DEAD, reason="http_503")
    assert handler_of(router, dead) is broken
    assert handler_of(router, replace(dead, reason="handler_failed")) is None
    assert [one.partition(".")[2] for one in router.conditions[:2]] == [
        "<locals>.missing (status 404)",
        "<locals>.broken (status range(500, 600))",
    ]


def test_the_first_function_whose_conditions_are_met_handles_a_page() -> None:
    router = Router()

    @router.handler(r"/product/", content_type="text/html")
    def product(page: ParsedPage, crawl: Handle) -> None: ...

    @router.handler(content_type="image/*")
    def image(page: ParsedPage, crawl: Handle) -> None: ...

    @router.handler(r"^https://site\.test/")
    async def other(page: ParsedPage, crawl: Handle) -> None: ...

    def found(name: str, content_type: str) -> object:
        return handler_of(router, page(exchange(name, b""), content_type=content_type))

    assert found("product/1", "text/html") is product
    assert found("product/1", "application/pdf") is other
    assert found("logo", "image/png") is image
    assert handler_of(router, page(exchange("x", b"", url="https://else.test/"), content_type="text/html")) is None
    assert "product, " in repr(router)


def test_a_router_is_loaded_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_shop_of_tests.py").write_text("from crawler import Router\nrouter = Router()\nother = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(load_router("a_shop_of_tests:router"), Router)
    with pytest.raises(UserError, match=r"is not a crawler\.Router"):
        load_router("a_shop_of_tests:other")
    with pytest.raises(UserError, match="cannot be imported"):
        load_router("a_shop_of_tests:none")


def test_a_parsed_page_has_selectors() -> None:
    html = b"<h1> A <b>shop</b> </h1><p class='price now'>9</p><a href='/product/1'>one</a>"
    links = (Link("https://site.test/product/1"), Link("https://site.test/about"))
    parsed = ParsedPage.of(page(exchange("", html), charset="utf-8", links=links))
    assert parsed.select_text("h1") == "A shop"
    assert parsed.select_text("h2") is None
    assert parsed.select_attr(".price", "class") == "price now"
    assert parsed.select_attr("h1", "class") is None
    assert [element.tag for element in parsed.select("p, a")] == ["p", "a"]
    assert parsed.urls("/product/") == ["https://site.test/product/1"]
    assert (parsed.status, parsed.body, parsed.text) == (200, html, html.decode())
    assert ParsedPage.of(page(exchange("", b'{"a": [1]}'))).json() == {"a": [1]}
    nothing = ParsedPage.of(page(None, "x"))
    assert (nothing.status, nothing.body, nothing.select("*")[1:2]) == (0, b"", nothing.select("head"))


def test_a_selector_needs_no_more_than_the_beginning_of_a_large_body() -> None:
    bomb = gzip.compress(b"<h1>Boom</h1>" + b"<p>x" * (8 << 20))
    parsed = ParsedPage.of(page(exchange("", bomb, b"Content-Encoding: gzip"), charset="utf-8"))
    tracemalloc.start()
    try:
        assert parsed.select_text("h1") == "Boom"
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()
    assert len(parsed.body) == 13 + (32 << 20)


@pytest.mark.parametrize("item", [{"a": ["x\ud83d"]}, {"a": [msgspec.Raw(b'"x\\ud83d"')]}])
def test_half_of_a_character_is_replaced_in_an_item(item: dict[str, Any]) -> None:
    handle = Handle()
    handle.push("shop", item)
    (found,) = handle.result().items
    assert found.fields == {"a": ["x?"]}


def test_json_ld_is_found_by_a_path() -> None:
    script = b'<script type="application/ld+json">{"@type":"Product","offers":[{"price":1},{"price":2}]}</script>'
    parsed = ParsedPage.of(page(exchange("x", script), content_type="text/html"))
    assert parsed.json_ld("Product.offers.price") == [1, 2]
    assert parsed.json_ld() == parsed.json_ld("Product")


async def test_what_has_no_url_cannot_be_fetched() -> None:
    handle = Handle(requests=VisitRequests(None, None, Files()))
    (element,) = ParsedPage.of(page(exchange("", b"<a name=x>x</a>"))).select("a")
    for missing in (None, "", element):
        with pytest.raises(ValueError, match="there is no URL"):
            await handle.fetch(missing)


async def test_as_many_redirects_are_followed_as_from_page_to_page() -> None:
    hops = [exchange(str(number), b"", b"Location: /%d" % (number + 1), status=302) for number in range(20)]
    visit = KnownAnswers((answer.url, answer) for answer in [*hops, exchange("20", b"")])
    answer = await Handle(requests=VisitRequests(None, visit, Files())).fetch(hops[0].url)
    assert answer.url == "https://site.test/20"


def test_elements_are_looked_for_within_another_one() -> None:
    found = ParsedPage.of(page(exchange("", b"<ul id=a><li>1</ul><ul id=b><li>2<li>3</ul>")))
    (second,) = found.select("#b")
    assert [one.text for one in found.select("li", second)] == ["2", "3"]
