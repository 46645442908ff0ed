"""`crawler.testing`: a handler is called as in a crawl, without a server."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crawler import Context, FetchFailed, Handle, ParsedPage, Retry, Router, UserError
from crawler.handlers.recorded import save
from crawler.http_head import Secret
from crawler.page import Extra
from crawler.testing import page, run_handler

URL = "https://shop.test/list"


@dataclass
class Shop:
    currency: str = "EUR"


router = Router(Shop)


@router.on_failure(kind="timeout")
def late(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("late", {"url": page.url, "status": page.status})


@router.handler(content_type="application/json")
def api(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("api", page.json())


@router.handler(r"/list", label="shop")
async def listing(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("shops", {"title": page.title, "currency": crawl.settings.currency, "rate": crawl.state["rate"]})
    await crawl.enqueue(page.select("a"), label="product", payload={"shop": page.payload["id"]})
    await crawl.enqueue(["mailto:a@shop.test", page.links[0].url])


@router.handler()
def broken(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("lost", {})
    raise ValueError("no title")


async def test_a_handler_gets_what_it_would_get_in_a_crawl() -> None:
    body = "<title>A shop</title><base href=/de/><a href=1>1</a>"
    found = run_handler(router, page(URL, body, label="shop", payload={"id": 7}), {"currency": "CHF"}, rate=1.5)
    assert found.handler == "listing"
    assert found.items == {"shops": [{"title": "A shop", "currency": "CHF", "rate": 1.5}]}
    assert found.links == ["https://shop.test/de/1", "https://shop.test/de/1"]
    assert found.labels == {"https://shop.test/de/1": ("product", {"shop": 7})}
    assert found.error == ""


def test_failures_types_and_errors() -> None:
    assert run_handler(router, page(URL, reason="timeout")).items == {"late": [{"url": URL, "status": 0}]}
    made = page(URL, b'\xef\xbb\xbf{"a": 1}', headers={"content-type": "application/json"})
    assert run_handler(router, made).items == {"api": [{"a": 1}]}
    failed = run_handler(router, page(URL, "<p>"))
    assert (failed.handler, failed.items, failed.error[:20]) == ("broken", {}, "ValueError: no title")
    for status in (404, 520, 999):
        assert run_handler(router, page(URL, status=status)).handler == ""


@pytest.mark.parametrize("status", [-1, 99, 1000])
def test_a_status_that_no_page_has_is_refused(status: int) -> None:
    with pytest.raises(UserError, match="from 200 to 999"):
        page(URL, status=status)


def test_a_stop_is_in_the_result() -> None:
    own = Router()

    @own.handler()
    def enough(page: ParsedPage, crawl: Handle) -> None:
        crawl.stop("enough")

    assert run_handler(own, page(URL)).stop == "enough"
    assert run_handler(router, page(URL, reason="timeout")).stop is None


def test_items_are_those_after_the_functions_for_items() -> None:
    own = Router()

    @own.on_item
    async def change(name: str, item: dict[str, Any], crawl: Context) -> list[dict[str, Any]]:
        return [item | {"n": await crawl.store.increment(name)} for _ in range(item["times"])]

    @own.handler()
    def find(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("a", {"times": 2})
        crawl.push("b", {"times": 0})

    assert run_handler(own, page(URL)).items == {"a": [{"times": 2, "n": 1}, {"times": 2, "n": 2}]}


def test_a_retry_is_told_from_an_error() -> None:
    own = Router()

    @own.handler()
    def again(page: ParsedPage, crawl: Handle) -> None:
        raise Retry("no price")

    result = run_handler(own, page(URL))
    assert (result.error, result.retry_after) == ("no price", 0.0)
    assert run_handler(router, page(URL, "<p>")).retry_after is None
    for wrong in (-1, float("nan"), 1e9):
        with pytest.raises(ValueError, match="0 to 86,400 seconds"):
            Retry(after=wrong)


@pytest.mark.parametrize("url", ["shop.test", "ftp://shop.test/", ""])
def test_a_url_that_cannot_be_crawled_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="cannot be crawled"):
        page(url)


JSON = '{"a": "é😀"}'


@pytest.mark.parametrize(
    "body",
    [
        JSON.encode(),
        b"\xef\xbb\xbf" + JSON.encode(),
        *(JSON.encode(coding) for coding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
        b"\xfe\xff" + JSON.encode("utf-16-be"),
        b'{"a": "\\u00e9\\ud83d\\ude00"}',
    ],
)
def test_json_may_have_any_unicode_encoding(body: bytes) -> None:
    assert page(URL, body, headers={"content-type": "application/json"}).json() == {"a": "é😀"}


@pytest.mark.parametrize("body", [b'{"a": "x\\ud83d"}', b'{"a": "x\\ude00"}', b'{"a": "x\xed\xa0\xbd"}'])
def test_half_characters_in_json_do_no_harm(body: bytes) -> None:
    assert page(URL, body, headers={"content-type": "application/json"}).json() == {"a": "x?"}


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("é1".encode(), "text/plain"),
        (b"\xef\xbb\xbf" + "é1".encode(), "text/plain"),
        (b"\xef\xbb\xbf" + "é1".encode(), "text/csv; charset=iso-8859-1"),
        ("é1".encode("utf-16"), "text/plain"),
        (b"\xfe\xff" + "é1".encode("utf-16-be"), "application/json"),
        ("é1".encode("utf-16-le"), "text/plain; charset=utf-16le"),
        ("é1".encode("latin-1"), "text/plain; charset=latin1"),
    ],
)
def test_text_has_no_byte_order_mark(body: bytes, content_type: str) -> None:
    assert page(URL, body, headers={"content-type": content_type}).text == "é1"


def test_requests_of_a_handler_are_answered_by_pages() -> None:
    router = Router()

    @router.handler()
    async def product(page: ParsedPage, crawl: Handle) -> None:
        price = (await crawl.fetch("/api/1")).json()["price"]
        photo = await crawl.download("/1.png")
        try:
            await crawl.fetch("/late")
        except FetchFailed as error:
            await crawl.push("products", {"price": price, "size": photo.size, "late": error.reason})
        await crawl.fetch("/unknown")

    answers = [
        page("https://shop.example/api/1", '{"price": 7}', headers={"Content-Type": "application/json"}),
        page("https://shop.example/1.png", b"PNG", headers={"Content-Type": "image/png"}),
        page("https://shop.example/late", reason="timeout"),
    ]
    result = run_handler(router, page("https://shop.example/1"), answers=answers)
    assert result.error.startswith("Refused: no_answer: there is no answer for https://shop.example/unknown")
    answers.append(page("https://shop.example/unknown", reason="robots"))
    assert run_handler(router, page("https://shop.example/1"), answers=answers).error.startswith("Refused: robots")
    answers[-1] = page("https://shop.example/unknown", status=404)
    result = run_handler(router, page("https://shop.example/1"), answers=answers)
    assert result.items == {"products": [{"price": 7, "size": 3, "late": "timeout"}]}


def test_the_cookies_of_a_page_are_those_that_it_sets() -> None:
    exchange = page(URL).exchange
    assert exchange is not None
    fields = ((b"Set-Cookie", b"id=7=; Path=/"), (b"set-cookie", b' a = "b" ;Secure'), (b"set-cookie", b"; Secure"))
    assert msgspec.structs.replace(exchange, headers=fields).cookies == {"id": "7=", "a": '"b"'}
    hidden = ((b"set-cookie", b"[redacted]"),)
    shown = msgspec.structs.replace(exchange, headers=hidden, set_cookies=(Secret("id=8; Path=/"),))
    assert shown.cookies == {"id": "8"}
    assert page(URL, headers={"Set-Cookie": "id=7"}).cookies == {"id": "7"}
    assert page(URL, reason="timeout").cookies == {}


@pytest.mark.parametrize("reason", ["nonsense", "404", "given_up_"])
def test_a_reason_that_no_answer_has_is_refused(reason: str) -> None:
    with pytest.raises(UserError, match=f"reason='{reason}': no page fails like this; .*robots_unreachable"):
        page(URL, reason=reason)


@pytest.mark.parametrize(("reason", "status"), [("http_404", 200), ("given_up_http_503", 200), ("timeout", 404)])
def test_a_page_has_a_response_or_a_reason_why_there_is_none(reason: str, status: int) -> None:
    with pytest.raises(UserError, match="give the status of a response, such as 404, or the reason"):
        page(URL, reason=reason, status=status)


FEED = "<rss><channel><item><link>http://shop.test/1</link></item></channel></rss>"


@pytest.mark.parametrize(
    ("body", "status", "headers", "links"),
    [
        (FEED, 200, {"content-type": "application/rss+xml"}, ["http://shop.test/1"]),
        ("<p>", 200, {"link": "</2>; rel=next"}, ["https://shop.test/2"]),
        ("<a href=/no>", 302, {"location": "/3"}, ["https://shop.test/3"]),
        ("<a href=/4>", 302, {}, ["https://shop.test/4"]),
        ("<a href=/no>", 200, {"x-robots-tag": "nofollow"}, []),
    ],
)
def test_links_are_those_that_a_crawl_would_find(
    body: str, status: int, headers: dict[str, str], links: list[str]
) -> None:
    assert page(URL, body, status=status, headers=headers).urls() == links


def test_the_body_of_a_request_is_in_the_result() -> None:
    own = Router()

    @own.handler()
    def search(page: ParsedPage, crawl: Handle) -> None:
        for text in ("tea", "milk"):
            crawl.enqueue(page.form().fill(q=text).submit(), label=text)
        crawl.enqueue("/about", unique_key="2")
        crawl.enqueue("/more", data={"a": 1})

    result = run_handler(own, page(URL, "<form method=post action=/search><input name=q>"))
    *searches, about, more = result.links
    assert [result.sent[url] for url in searches] == [("POST", b"q=tea"), ("POST", b"q=milk")]
    assert [result.labels[url][0] for url in searches] == ["tea", "milk"]
    assert {url.partition("#")[0] for url in searches} == {"https://shop.test/search"}
    assert about == "https://shop.test/about#2"
    assert more not in result.labels


def test_what_a_page_has_loaded_is_a_page_of_its_own_site() -> None:
    loaded = page("https://api.other.test/1", "{}", status=404).exchange
    assert loaded is not None
    (answer,) = replace(page(URL), extras=(Extra(loaded, "xhr"),)).resources()
    assert (answer.domain, answer.status, answer.reason) == ("other.test", 404, "http_404")


@pytest.mark.parametrize(
    ("file", "payload"),
    [("a\\u0000b", "{}"), ("../secret.txt", "{}"), ("a", '{"a":' + "[" * 9_999 + "]" * 9_999 + "}")],
)
def test_a_recorded_page_that_somebody_has_changed_reads_nothing_else(tmp_path: Path, file: str, payload: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "page.json").write_text(
        f'{{"url":"http://a.test/","status":200,"file":"{file}","headers":{{}},"payload":{payload}}}'
    )
    with pytest.raises(UserError, match="has no page"):
        page(folder)


@pytest.mark.parametrize("name", ["page.json", "body.html"])
def test_a_page_does_not_replace_what_is_no_recorded_page(tmp_path: Path, name: str) -> None:
    save(page(URL, "<p>one"), tmp_path / "pages")
    save(page(URL, "<p>two"), tmp_path / "pages")
    assert page(tmp_path / "pages").body == b"<p>two"
    (tmp_path / name).write_text("mine")
    with pytest.raises(UserError, match="has no page"):
        save(page(URL, "<p>one"), tmp_path)
    assert (tmp_path / name).read_text() == "mine"
