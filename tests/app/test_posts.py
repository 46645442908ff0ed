"""Requests as data: method, body and headers travel with their URLs, and are told apart."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler import Crawl, Handle, OutgoingRequest, ParsedPage, Request, Retry, Router
from crawler.app.restore import PageLine, found_on
from crawler.parse.html import ExtractPolicy
from crawler.scope.scope import LinkFilter, RecentUrls, Scope, TrapPolicy, breadth_first
from crawler.sinks.lines import decoded_lines
from tests.site import Reply, Site
from tests.site import Request as Asked


class Api(Site):
    """Answers with what it was asked for, as JSON; `/to/STATUS` redirects, and the root is an empty page."""

    def respond(self, request: Asked) -> Reply | None:
        path = request.path
        if path == "/robots.txt":
            return None
        if path.startswith("/to/"):
            return Reply(status=int(path.split("/")[2]), headers={"Location": "/seen"})
        if path == "/":
            return Reply("<title>Root</title>")
        said = {"method": request.method, "body": request.body.decode(), "cookie": request.headers["Cookie"]}
        return Reply(json.dumps({**said, "type": request.headers["Content-Type"]}), 200, {"Content-Type": "text/json"})


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as api:
        yield api


async def crawled(api: Api, folder: Path, ask: Any, **tables: Any) -> list[dict[str, Any]]:
    """The items of a crawl whose handler of the root calls `ask` with the crawl."""
    router = Router()

    @router.handler(r"test/$")
    def root(page: ParsedPage, crawl: Handle) -> None:
        ask(crawl)

    @router.handler()
    def other(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("seen", {"url": page.url, "label": page.label, "payload": page.payload, **page.json()})

    async with Crawl(["http://a.test/"], handlers=router, settings=api.settings(folder) | tables) as crawl:
        await crawl.finish()
    return list(crawl.items("seen"))


def lines(folder: Path) -> dict[str, dict[str, Any]]:
    found = (line for file in folder.glob("out/*.pages.jsonl") for line in file.read_bytes().splitlines())
    return {line["url"]: line for line in map(msgspec.json.decode, found)}


@pytest.mark.parametrize("flags", [{"retry": "yes"}, {"retry": 1}, {"private": 1}], ids=str)
def test_flags_that_are_no_truth_values_are_refused_at_once(flags: dict[str, Any]) -> None:
    """In a queue, they ended each run of the crawl."""
    with pytest.raises(TypeError, match="has to be True or False"):
        Request("http://a.test/", method="POST", **flags)


@pytest.mark.parametrize("is_kept", [False, True])
async def test_cookies_of_a_login_that_are_not_kept_are_named_once(
    api: Api, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_kept: bool
) -> None:
    api.respond = lambda request: Reply(json.dumps({}), 200, {"Set-Cookie": "session=1"})  # type: ignore[method-assign]

    def ask(crawl: Handle) -> None:
        for number in range(2):
            crawl.enqueue(f"/login/{number}", data={"user": "ada"})

    with caplog.at_level("WARNING", "crawler"):
        await crawled(api, tmp_path, ask, **({"requests": [{"cookies": True}]} if is_kept else {}))
    told = [record.fields["url"] for record in caplog.records if record.message == "cookies_not_kept"]  # type: ignore[attr-defined]
    assert [url[:-1] for url in told] == ([] if is_kept else ["http://a.test/login/"])


async def test_requests_to_a_url_are_told_apart(api: Api, tmp_path: Path) -> None:
    """By method and body, or by their keys. The same one is sent once."""

    def ask(crawl: Handle) -> None:
        for number in (1, 2, 2):
            crawl.enqueue("/search", json={"page": number}, label="results", payload={"number": number})
        crawl.enqueue("/search", data={"q": "a b", "x": ["1", "2"]}, cookies={"id": "7"})
        crawl.enqueue("/search")
        crawl.enqueue("/search", unique_key="again/1", label="again")
        crawl.enqueue([Request("/search", method="PUT", body="é", headers={"Content-Type": "text/x"})])

    items = await crawled(api, tmp_path, ask)
    assert {item["url"] for item in items} == {"http://a.test/search"}
    sent = sorted((item["method"], item["body"], item["type"], item["label"]) for item in items)
    form = "application/x-www-form-urlencoded"
    assert sent == [
        ("GET", "", None, ""),
        ("GET", "", None, "again"),
        ("POST", "q=a+b&x=1&x=2", form, ""),
        ("POST", '{"page":1}', "application/json", "results"),
        ("POST", '{"page":2}', "application/json", "results"),
        ("PUT", "é", "text/x", ""),
    ]
    assert {item["payload"].get("number") for item in items if item["label"] == "results"} == {1, 2}
    assert [item["cookie"] for item in items if item["type"] == form] == ["id=7"]
    keys = {url.partition("#")[2] for url in lines(tmp_path)}
    assert {"", "again%2F1"} < keys
    assert len(keys) == 6


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_a_redirect_keeps_the_request_or_turns_it_into_a_get(
    api: Api, tmp_path: Path, status: int, method: str
) -> None:
    """Its target is requested although a plain request to it was made before (RFC 9110 15.4)."""

    def ask(crawl: Handle) -> None:
        crawl.enqueue("/seen", priority=1)
        crawl.enqueue(f"/to/{status}", data={"a": 1}, label="posted", payload={"b": 2})

    items = await crawled(api, tmp_path, ask)
    (first, second) = sorted(items, key=lambda item: str(item["label"]))
    assert (first["method"], first["label"]) == ("GET", "")
    assert (second["method"], second["body"]) == (method, "a=1" if method == "POST" else "")
    assert (second["label"], second["payload"]) == ("posted", {"b": 2})
    assert second["type"] == ("application/x-www-form-urlencoded" if method == "POST" else None)


async def test_a_post_that_redirects_to_its_own_url_is_followed_by_a_get(api: Api, tmp_path: Path) -> None:
    """As logins do that have failed."""
    api.respond = lambda request: (  # type: ignore[method-assign]
        None if request.path == "/robots.txt"
        else Reply("<p>") if request.path == "/"
        else Reply(status=302, headers={"Location": "/login"}) if request.method == "POST"
        else Reply("{}")
    )  # fmt: skip
    items = await crawled(api, tmp_path, lambda crawl: crawl.enqueue("/login", data={"a": 1}, label="in"))
    assert [(item["url"], item["label"]) for item in items] == [("http://a.test/login", "in")]
    assert [request.method for request, _ in api.answered if request.path == "/login"] == ["POST", "GET"]


@pytest.mark.parametrize(("status", "times"), [(500, 1), (502, 1), (503, 3), (429, 3)])
@pytest.mark.parametrize("retry", [False, True])
async def test_a_post_is_sent_again_only_if_it_was_not_carried_out(
    api: Api, tmp_path: Path, status: int, times: int, retry: bool
) -> None:
    answer = Api.respond
    api.respond = lambda request: (  # type: ignore[method-assign]
        Reply(status=status) if request.path == "/post" else answer(api, request)
    )
    quick = {"delay": 0, "backoff_base": 0.01, "tries": 3}
    await crawled(api, tmp_path, lambda crawl: crawl.enqueue("/post", data={"a": 1}, retry=retry), politeness=quick)
    assert api.times("/post") == (3 if retry else times)
    (line,) = [line for url, line in lines(tmp_path).items() if "/post" in url]
    assert (line["outcome"], line["reason"]) == ("dead", f"http_{status}")


async def test_a_program_seeds_requests_and_adds_some(api: Api, tmp_path: Path) -> None:
    router = Router()

    @router.handler()
    def seen(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("seen", {"label": page.label, "n": page.payload.get("n"), **page.json()})

    first = Request("http://a.test/first", json=[1])
    crawl = Crawl(
        [first, Request("http://a.test/first", unique_key="2")], handlers=router, settings=api.settings(tmp_path)
    )
    async with crawl:
        assert await crawl.add([Request("a.test/added", data={"a": 1})], label="added", payload={"n": 1}) == 1
        assert await crawl.add(first) == 0
        await crawl.finish()
    found = sorted((item["method"], item["body"], item["label"], item["n"]) for item in crawl.items("seen"))
    assert found == [("GET", "", "", None), ("POST", "[1]", "", None), ("POST", "a=1", "added", 1)]


async def test_only_a_page_that_was_requested_with_get_is_visited_again(api: Api, tmp_path: Path) -> None:
    def ask(crawl: Handle) -> None:
        crawl.enqueue("/a", data={"a": 1}, retry=True)
        crawl.enqueue("/b", unique_key="again", headers={"X": "1"})
        crawl.enqueue("/to/302", data={"a": 1})

    await crawled(api, tmp_path, ask, recrawl={"rules": ["every=7d"]}, limits={"max_pages": 5})
    again = {
        url.partition("#")[0].removeprefix("http://a.test")
        for url, line in lines(tmp_path).items()
        if line["next_visit"]
    }
    assert again == {"/", "/b"}


async def test_the_lines_of_pages_have_the_requests_that_a_repair_needs(api: Api, tmp_path: Path) -> None:
    def ask(crawl: Handle) -> None:
        crawl.enqueue("/a", data={"a": 1}, label="x", payload={"b": 2})
        crawl.enqueue("/to/307", data={"a": 1}, label="y")

    await crawled(api, tmp_path, ask)
    links, policy = LinkFilter(Scope.of(kind="any"), TrapPolicy(), breadth_first, RecentUrls(0)), ExtractPolicy()
    found = {
        entry.url: entry
        for path in (tmp_path / "out").glob("*.pages.jsonl")
        for line in decoded_lines(path, msgspec.json.Decoder(PageLine))
        for entry in found_on(line, [], links, policy)
    }
    requests = {url: (one.request and one.request.method, one.label) for url, one in found.items()}
    (key,) = {url.partition("#")[2] for url in requests}
    assert requests == {
        f"http://a.test/a#{key}": ("POST", "x"),
        f"http://a.test/to/307#{key}": ("POST", "y"),
        f"http://a.test/seen#{key}": ("POST", "y"),
    }


@pytest.mark.parametrize(("kind", "times"), [("before_request", 1), ("after_response", 2)])
async def test_a_function_may_delay_a_post_or_have_it_sent_again(
    api: Api, tmp_path: Path, kind: str, times: int
) -> None:
    """One that is delayed was not sent, and one that is sent again on purpose is no mistake."""
    router, asked = Router(), list[str]()

    def once(request: OutgoingRequest) -> None:
        if request.method == "POST":
            asked.append(request.url)
            if len(asked) == 1:
                raise Retry("later", after=0.1)

    if kind == "before_request":
        router.before_request(lambda request, context: once(request))
    else:
        router.after_response(lambda request, exchange, context: once(request))
    seed = Request("http://a.test/post", data={"a": 1})
    tables = api.settings(tmp_path) | {"politeness": {"delay": 0, "backoff_base": 0.01}}
    async with Crawl([seed], handlers=router, settings=tables) as crawl:
        await crawl.finish()
    assert api.times("/post") == times
    assert [line["outcome"] for line in lines(tmp_path).values()] == ["done"]


async def test_secrets_of_a_request_are_in_no_record(api: Api, tmp_path: Path) -> None:
    def ask(crawl: Handle) -> None:
        crawl.enqueue("/a", data={"password": "s3cret"}, headers={"Authorization": "s3cret"}, private=True)
        crawl.enqueue("/b", data={"a": 1}, cookies={"id": "s3cret"})
        crawl.enqueue("/c", data={"a": 1})

    api.respond = lambda request: None if request.path == "/robots.txt" else Reply("<p>{}")  # type: ignore[method-assign]
    await crawled(api, tmp_path, ask, archive={"compression": "gzip"})
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    records = gzip.decompress(warc.read_bytes())
    assert b"POST /a HTTP/1.1" in records
    assert b"s3cret" not in records
    assert records.count(b"[redacted]") == 3
    (by_tag,) = (line["followed"] for line in lines(tmp_path).values() if line["followed"])
    assert [url.partition("#")[0] for urls in by_tag.values() for url in urls] == ["http://a.test/c"]
    (request,) = [request for request, _ in api.answered if request.path == "/a"]
    assert (request.body, request.headers["Authorization"]) == (b"password=s3cret", "s3cret")


@pytest.mark.parametrize(
    "options",
    [
        {"method": "TRACE"},
        {"method": "GET", "data": {}},
        {"data": {}, "json": {}},
        {"headers": {"Host": "b.test"}},
        {"headers": {"User-Agent": "x"}},
        {"headers": {"X": "a\r\nY: b"}},
        {"headers": {"X": "\ud800"}},
        {"headers": {"X Y": "a"}},
        {"unique_key": "k" * 101},
        {"cookies": {"a": "1; b=2"}},
        {"cookies": {"a=b": "1"}},
    ],
)
def test_what_cannot_be_sent_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Request("/a", **options)


class Reading(msgspec.Struct):
    degrees: float


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"unique_key": 0}, "unique_key has to be text, not int"),
        ({"headers": {"X": 7}}, r"headers\['X'\] has to be text, not int"),
        ({"headers": ["X: 7"]}, "headers has to be a dict or None, not list"),
        ({"cookies": {"a": None}}, r"cookies\['a'\] has to be text, not None"),
        ({"data": "a=b"}, r"data has to be a dict, a list of \(name, value\) pairs or None, not str"),
        ({"data": {"a": {"b": 1}}}, r"data\['a'\] has to be text, a number, .* or a list of these, not dict"),
        ({"body": {"a": 1}}, "body has to be text, bytes or None, not dict"),
        ({"json": {"a": {1, 2}}}, r"json\['a'\] is set, which JSON does not have"),
        ({"json": [math.nan]}, r"json\[0\] is nan, which JSON does not have"),
        ({"json": {"a": Reading(math.nan)}}, r"json\['a'\]\['degrees'\] is nan, which JSON does not have"),
    ],
)
def test_values_of_other_types_are_refused_in_words(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        Handle().enqueue("/a", **options)


def test_each_field_of_a_request_is_there_once() -> None:
    request = Request(
        "/a",
        headers={"cookie": "a=1", "referer": "/b", "X": "1", "x": "2"},
        cookies={"b": "2"},
        referer="/c",
        data={"q": "tea", "none": None, "size": ["s", "m"]},
    ).request
    assert request.headers == (
        ("Cookie", "a=1; b=2"),
        ("Referer", "/c"),
        ("x", "2"),
        ("Content-Type", "application/x-www-form-urlencoded"),
    )
    assert request.body == b"q=tea&size=s&size=m"


def test_a_request_has_a_limit() -> None:
    Handle().enqueue("/a", body=b"a" * 1_000_000)  # which is compressed
    with pytest.raises(ValueError, match="32,768 bytes"):
        Handle().enqueue("/a", body=random.randbytes(40_000))
