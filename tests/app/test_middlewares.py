"""Functions that see each request, response and item of a crawl."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastwarc.warc import WarcRecordType

from crawler import (
    Context,
    Crawl,
    Drop,
    Exchange,
    FetchFailed,
    Handle,
    OutgoingRequest,
    ParsedPage,
    Retry,
    Router,
    UserError,
)
from crawler.sinks.reader import records_in
from tests.e2e.harness import ROOT
from tests.fetch.proxies import HttpProxy
from tests.site import Reply, Request, Site
from tests.typed import Typed

LINKS = "".join(f'<a href="/{name}">{name}</a>' for name in ("1", "2", "3"))


@pytest.fixture
def site() -> Iterator[Site]:
    def respond(request: Request) -> Reply | str | None:
        if request.path == "/robots.txt":
            return None
        return Reply(LINKS if request.path == "/" else f"<h1>{request.path[1:]}</h1>", headers={"Set-Cookie": "s=1"})

    with Site(respond) as site:
        yield site


@pytest.fixture
def settings(site: Site, tmp_path: Path) -> dict[str, Any]:
    return site.settings(tmp_path) | {"politeness": {"delay": 0, "tries": 3, "backoff_base": 0.01}}


def run(router: Router, settings: dict[str, Any], *more: str) -> Crawl:
    crawl = Crawl(["http://a.test/", *more], handlers=router, settings=settings)
    crawl.run()
    return crawl


def lines(settings: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """URL path -> its last line."""
    read = [path.read_text().splitlines() for path in sorted(Path(settings["replica"]["out"]).glob("*.pages.jsonl"))]
    return {line["url"].removeprefix("http://a.test"): line for each in read for line in map(json.loads, each)}


def test_requests_are_changed_in_order_and_all_of_them(settings: dict[str, Any], site: Site) -> None:
    router, seen = Router(), list[str]()

    @router.before_request
    def first(request: OutgoingRequest, crawl: Context) -> None:
        assert repr(request) == f"<OutgoingRequest GET {request.url}>"
        request.headers["X-Order"] = "first"
        request.headers["Accept-Language"] = "de"
        request.cookies["session"] = "secret"
        seen.append(f"{request.kind} {request.label} {request.payload}")

    @router.before_request
    async def second(request: OutgoingRequest, crawl: Context) -> None:
        await asyncio.sleep(0)
        request.headers["X-Order"] += ", second"
        request.headers["cookie"] = "own=1"

    @router.handler(r"test/$")
    async def front(page: ParsedPage, crawl: Handle) -> None:
        await crawl.drop()
        await crawl.enqueue("/1", label="one", payload={"a": 1})
        await crawl.fetch("/2")

    run(router, settings)
    for request, _ in site.answered:
        fields = (request.headers.get_all(name) for name in ("X-Order", "Accept-Language", "Cookie"))
        assert list(fields) == [["first, second"], ["de"], ["own=1; session=secret"]]
    assert seen == ["robots  {}", "page  {}", "fetch  {}", "page one {'a': 1}"]


def test_a_request_is_dropped_and_robots_txt_is_not(settings: dict[str, Any], site: Site) -> None:
    router = Router()

    @router.before_request
    def drop(request: OutgoingRequest, crawl: Context) -> None:
        if not request.url.endswith(("test/", "/3")):
            raise Drop("not today")

    @router.after_response
    def drop_after(request: OutgoingRequest, exchange: Exchange | None, crawl: Context) -> None:
        if request.url.endswith(("/3", "robots.txt")):
            raise Drop("nor this")

    @router.handler()
    async def fetching(page: ParsedPage, crawl: Handle) -> None:
        with pytest.raises(FetchFailed, match="dropped: not today"):
            await crawl.fetch("/4")

    crawl = run(router, settings)
    assert crawl.stats.denied == {"dropped": 2, "response_dropped": 1}
    assert crawl.stats.done == {"ok": 1}
    assert sorted(site.asked) == ["/", "/3", "/robots.txt"]
    found = lines(settings)
    assert [(found[f"/{name}"]["outcome"], found[f"/{name}"]["detail"]) for name in "123"] == [
        ("denied", "not today"),
        ("denied", "not today"),
        ("denied", "nor this"),
    ]


def test_what_was_dropped_can_be_queued_again(settings: dict[str, Any], typed: Typed) -> None:
    dropping, keeping = Router(), Router()

    @dropping.before_request
    def drop(request: OutgoingRequest, crawl: Context) -> None:
        if request.url[-1] in "12":
            raise Drop("not today")

    assert run(dropping, settings).stats.denied == {"dropped": 2}
    place = ("--data-dir", settings["replica"]["data_dir"])
    assert "denied: dropped; a function of the router" in " ".join(typed("why", "http://a.test/1", *place).out.split())
    assert typed("dead", "requeue", "--reason", "dropped", *place).code == 0
    assert run(keeping, settings).stats.done == {"ok": 2}


def test_a_delayed_request_waits_without_losing_a_try(settings: dict[str, Any], site: Site) -> None:
    router, asked = Router(), Counter[str]()

    @router.before_request
    def wait(request: OutgoingRequest, crawl: Context) -> None:
        asked[request.kind] += 1
        if asked[request.kind] <= 4:
            raise Retry("no proxy is free", after=0.2)

    own = settings | {"politeness": {"delay": 0, "tries": 1}}
    began = time.monotonic()
    stats = run(router, own).stats
    assert time.monotonic() - began >= 8
    assert stats.done == {"ok": 4}
    assert (site.times("/robots.txt"), site.times("/")) == (1, 1)


async def test_a_robots_txt_that_is_not_accepted_is_requested_again_soon(settings: dict[str, Any], site: Site) -> None:
    """As through another proxy. One that is unreachable would hold up its site for a minute."""
    router, refused = Router(), list[str]()

    @router.after_response
    def refuse(request: OutgoingRequest, exchange: Exchange | None, crawl: Context) -> None:
        if request.kind == "robots" and len(refused) < 2:
            refused.append(request.url)
            raise Retry("the proxy is refused")

    own = settings | {"politeness": {"delay": 0, "tries": 3}}
    async with asyncio.timeout(50), Crawl("http://a.test/", handlers=router, settings=own) as crawl:
        await crawl.finish()
    assert crawl.stats.done == {"ok": 4}
    assert site.times("/robots.txt") >= 3


def test_a_response_is_not_accepted_until_the_last_try(settings: dict[str, Any], site: Site) -> None:
    router, statuses = Router(), list[int]()

    @router.after_response
    async def banned(request: OutgoingRequest, exchange: Exchange | None, crawl: Context) -> None:
        assert exchange is not None
        statuses.append(exchange.status)
        if request.url.endswith("/1") or (request.url.endswith("/2") and site.times("/2") < 2):
            raise Retry("a captcha", after=0.5)

    @router.handler()
    def count(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("pages", {"url": page.url})

    crawl = run(router, settings)
    assert [site.times(f"/{name}") for name in "123"] == [3, 2, 1]
    assert statuses == [404] + [200] * 7
    assert (crawl.stats.done, crawl.stats.dead) == ({"ok": 3}, {"response_retry": 1})
    assert len(list(crawl.items("pages"))) == 3
    assert lines(settings)["/1"]["detail"] == "a captcha"
    expected = {
        "robots.txt": 1,
        "": 1,
        "1": 2,
        "2": 2,
        "3": 1,
    }  # of the last try of a page that is dead, nothing is kept
    assert archived(settings) == {f"http://a.test/{name}": times for name, times in expected.items()}


def archived(settings: dict[str, Any]) -> Counter[str | None]:
    """How many responses of each URL are in the archive."""
    files = Path(settings["replica"]["out"]).glob("*.warc.gz")
    found = (records_in(str(path), WarcRecordType.response) for path in files)
    return Counter(record.headers.get("WARC-Target-URI") for records in found for record in records)


def test_the_backoff_that_a_site_asks_for_counts_whatever_a_function_wants(tmp_path: Path) -> None:
    def respond(request: Request) -> Reply | str:
        busy = request.path == "/" and site.times("/") == 0
        return Reply("busy", 429, {"Retry-After": "2"}) if busy else "fine"

    router = Router()

    @router.after_response
    def at_once(request: OutgoingRequest, exchange: Exchange | None, crawl: Context) -> None:
        if exchange is not None and exchange.status == 429:
            raise Retry("another session")

    with Site(respond) as site:
        own = site.settings(tmp_path) | {"politeness": {"delay": 0, "tries": 3, "backoff_base": 0.01}}
        stats = run(router, own).stats
        first, second = (request.at for request, _ in site.answered if request.path == "/")
    assert second - first > 1.9
    assert stats.done == {"ok": 1}


def test_what_pages_embed_has_a_kind_of_its_own(settings: dict[str, Any]) -> None:
    def respond(request: Request) -> str:
        return "<img src=/a.png>" if request.path == "/" else ""

    router, kinds = Router(), dict[str, str]()

    @router.before_request
    def note(request: OutgoingRequest, crawl: Context) -> None:
        kinds[request.url.rpartition("/")[2]] = request.kind

    with Site(respond) as site:
        run(router, settings | {"fetch": {"host_map": site.host_map("a.test")}, "archive": {"requisites": True}})
    assert kinds == {"robots.txt": "robots", "": "page", "a.png": "requisite"}


@pytest.mark.parametrize(
    "raised", [ValueError("no token"), SystemExit(3), GeneratorExit(), asyncio.CancelledError()], ids=repr
)
@pytest.mark.parametrize("is_async", [True, False])
def test_a_function_that_fails_sends_nothing(
    settings: dict[str, Any], site: Site, raised: BaseException, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    router = Router()

    def fail(request: OutgoingRequest, crawl: Context) -> None:
        if request.url.endswith("/1"):
            raise raised

    async def fail_later(request: OutgoingRequest, crawl: Context) -> None:
        await asyncio.sleep(0)
        fail(request, crawl)

    router.before_request(fail_later if is_async else fail)
    stats = run(router, settings).stats
    assert (stats.done, stats.dead) == ({"ok": 3}, {"middleware_failed": 1})
    assert site.times("/1") == 0
    assert type(raised).__name__ in lines(settings)["/1"]["detail"]
    logged = [record.fields for record in caplog.records if record.message == "middleware_failed"]  # type: ignore[attr-defined]
    assert {fields["url"] for fields in logged} == {"http://a.test/1"}
    assert len(logged) == 3


def test_fields_of_the_crawler_itself_may_stay_or_go() -> None:
    request = OutgoingRequest("https://a.test/", "GET", (("If-None-Match", "x"), ("X-Own", "1")))
    request.headers["X-Own"] = "2"
    assert request.fields == (("If-None-Match", "x"), ("X-Own", "2"))
    del request.headers["If-None-Match"]
    assert request.fields == (("X-Own", "2"),)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda request: request.headers.update({"Host": "b.test"}), "host cannot be changed"),
        (lambda request: request.headers.update({"user-agent": "Mozilla"}), "user-agent cannot be changed"),
        (lambda request: setattr(request, "proxy", "b.test:80"), "is not the URL of a proxy"),
        (lambda request: setattr(request, "proxy", 5), "proxy has to be text, not int"),
        (lambda request: setattr(request, "cookies", None), "cookies has to be a dict, not None"),
        (lambda request: request.headers.update({"If-None-Match": "x"}), "if-none-match cannot be changed"),
        (lambda request: request.headers.update({"X": "a\r\nb"}), "control character"),
        (lambda request: request.headers.update({"X": 5}), "headers['X'] has to be text"),
        (lambda request: request.cookies.update({"a": "1; b=2"}), "semicolon"),
        (lambda request: request.cookies.update({"a=b": "1"}), "semicolon"),
        (lambda request: request.cookies.update({"a": "1\r\nX: 2"}), "semicolon"),
        (lambda request: setattr(request, "cookies", "a=1"), "cookies has to be a dict"),
        (lambda request: setattr(request, "url", "http://a.test/secret"), "'url' of 'OutgoingRequest'"),
        (lambda request: setattr(request, "method", "DELETE"), "'method' of 'OutgoingRequest'"),
        (lambda request: {"X": "1"}, "returned dict"),
    ],
)
def test_what_cannot_be_changed_is_told(settings: dict[str, Any], site: Site, change: Any, problem: str) -> None:
    router = Router()

    @router.before_request
    def wrong(request: OutgoingRequest, crawl: Context) -> Any:
        return change(request) if request.url.endswith("/1") else None

    run(router, settings)
    line = lines(settings)["/1"]
    assert (line["outcome"], line["reason"]) == ("dead", "middleware_failed")
    assert problem in line["detail"]
    assert (site.times("/1"), site.times("/secret")) == (0, 0)


def test_items_are_changed_dropped_and_split_in_order(settings: dict[str, Any]) -> None:
    router = Router()

    @router.on_item
    def change(name: str, item: dict[str, Any], crawl: Context) -> None:
        item["order"] = ["first"]

    @router.on_item
    async def split(name: str, item: dict[str, Any], crawl: Context) -> list[dict[str, Any]] | dict[str, Any]:
        await asyncio.sleep(0)
        if item["h1"] == "1":
            raise Drop("one")
        return [item, item | {"copy": True}] if item["h1"] == "2" else item | {"order": [*item["order"], "second"]}

    @router.on_item
    def last(name: str, item: dict[str, Any], crawl: Context) -> None:
        item["order"] = [*item["order"], name]

    @router.handler(r"/\d")
    def heading(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("own", {"h1": page.select_text("h1")})

    rule = {"name": "rule", "match": r"/\d", "fields": {"h1": {"css": "h1"}}}
    crawl = run(router, settings | {"extract": [rule]})
    for name in ("own", "rule"):
        found = sorted(crawl.items(name), key=lambda item: (item["h1"], item.get("copy", False)))
        assert found == [
            {"h1": "2", "order": ["first", name]},
            {"h1": "2", "order": ["first", name], "copy": True},
            {"h1": "3", "order": ["first", "second", name]},
        ]
    assert lines(settings)["/1"]["rejected"] == ["rule: dropped (one)", "own: dropped (one)"]


@pytest.mark.parametrize("wrong", ["text", [1], ["text"], ValueError("no price"), {"a": object()}], ids=repr)
def test_a_function_for_items_that_fails_fails_the_page(settings: dict[str, Any], wrong: Any) -> None:
    router = Router()

    @router.on_item
    def fail(name: str, item: dict[str, Any], crawl: Context) -> Any:
        if isinstance(wrong, Exception):
            raise wrong
        return wrong

    @router.handler(r"/1")
    def heading(page: ParsedPage, crawl: Handle) -> None:
        crawl.push("own", {})

    rule = {"name": "rule", "match": "/2", "fields": {"h1": {"css": "h1"}}}
    stats = run(router, settings | {"extract": [rule]}).stats
    assert (stats.done, stats.dead, stats.items) == ({"ok": 2}, {"handler_failed": 2}, {})


async def test_each_request_may_have_a_proxy_of_its_own(site: Site, tmp_path: Path) -> None:
    """Also robots.txt. Credentials of the proxy are in no record."""
    router = Router()
    async with HttpProxy(site.port, "me:secret") as first, HttpProxy(site.port) as second:
        proxies = [f"http://me:secret@127.0.0.1:{first.port}", f"http://127.0.0.1:{second.port}"]

        @router.before_request
        def rotate(request: OutgoingRequest, crawl: Context) -> None:
            request.proxy = proxies[0]
            proxies.reverse()

        on_loopback = {"allow": ["127.0.0.1"], "ports": [site.port]}
        own = site.settings(tmp_path) | {"fetch": on_loopback}
        async with Crawl([site.url], handlers=router, settings=own) as crawl:
            await crawl.finish()
        assert crawl.stats.done == {"ok": 4}
        assert sorted((len(first.heads), len(second.heads))) == [2, 3]
    assert b"secret" not in everything_in(tmp_path)


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_failed_request_is_shown_and_may_be_tried_again(site: Site, tmp_path: Path) -> None:
    """Through a proxy that is away, which would otherwise make the domain wait."""
    router, failures = Router(), list[str]()

    @router.before_request
    def choose(request: OutgoingRequest, crawl: Context) -> None:
        if request.kind == "page" and not failures:
            request.proxy = "http://127.0.0.1:9"
            request.state["proxy"] = "away"

    @router.after_response
    def note(request: OutgoingRequest, exchange: Exchange | None, crawl: Context) -> None:
        if exchange is None:
            failures.append(f"{request.failure} {request.state['proxy']}")
            raise Retry("another proxy")

    own = site.settings(tmp_path) | {
        "fetch": {"allow": ["127.0.0.1"], "ports": [site.port]},
        "politeness": {"delay": 0, "backoff_base": 0.01},
    }
    crawl = Crawl([site.url], handlers=router, settings=own)
    began = time.monotonic()
    assert crawl.run().done == {"ok": 4}
    assert failures == ["proxy away"]
    assert time.monotonic() - began < 9


async def test_the_example_of_the_guide_rotates_proxies_and_sessions(site: Site, tmp_path: Path) -> None:
    """Through a proxy that the site refuses, one that is away, and two that work, each with cookies of its own."""
    guide = (ROOT / "docs" / "how-to" / "extend.md").read_text()
    (example,) = [text for text in re.findall(r"^```python\n(.*?)^```", guide, re.M | re.S) if "PROXIES" in text]
    assert len([line for line in example.splitlines() if line]) <= 50
    async with HttpProxy(site.port, status=403) as refused, HttpProxy(site.port) as one, HttpProxy(site.port) as other:
        names: dict[str, Any] = {}
        exec(compile(example, "guide.py", "exec", dont_inherit=True), names)
        names["PROXIES"][:] = [f"http://127.0.0.1:{port}" for port in (refused.port, 9, one.port, other.port)]
        own = site.settings(tmp_path) | {
            "fetch": {"allow": ["127.0.0.1"], "ports": [site.port]},
            "politeness": {"delay": 0, "backoff_base": 0.01},
        }
        async with Crawl([site.url], handlers=names["router"], settings=own) as crawl:
            await crawl.finish()
    assert crawl.stats.done == {"ok": 4}
    assert crawl.stats.dead == {}
    assert len(refused.heads) == 1
    assert min(len(one.heads), len(other.heads)) >= 2
    for proxy in (one, other):
        assert b"\r\nCookie:" not in proxy.heads[0]
        assert b"\r\nCookie: s=1\r\n" in proxy.heads[-1]


def test_functions_with_other_arguments_are_refused() -> None:
    router = Router()
    with pytest.raises(UserError, match="wrong must take two arguments: the request and the crawl"):

        @router.before_request
        def wrong(request: OutgoingRequest) -> None: ...  # type: ignore[type-var]

    with pytest.raises(UserError, match="must take three arguments: the request, the exchange and the crawl"):
        router.after_response(lambda request, exchange: None)  # type: ignore[arg-type, misc]
    with pytest.raises(UserError, match="must take three arguments: the name, the item and the crawl"):
        router.on_item(lambda item: None)  # type: ignore[arg-type, misc]
    with pytest.raises(UserError, match="must take one argument: the crawl"):
        router.on_end(lambda: None)  # type: ignore[arg-type, misc]
    with pytest.raises(UserError, match="would not run"):

        @router.on_start
        def begin(crawl: Context) -> Any:
            yield
