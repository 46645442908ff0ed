"""Requests of handlers: as polite as those for pages, archived with the page, and part of its item."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from crawler import Crawl, FetchFailed, Handle, ParsedPage, Refused, Router
from crawler.app.embedded_valkey import open_store
from crawler.audit.check import Rules, audit
from crawler.audit.records import read_archive
from crawler.cli.main import app as commands
from crawler.page import Extra
from crawler.settings.load import load
from crawler.sinks.reader import read_rows, records_in
from crawler.worker.extra import ExtraRequests, PageVisit
from frontier.counters import Counters, Counts
from frontier.crawls import open_crawl
from frontier.reservations import Reservation, ReservationRefused, Reservations
from politeness.delay import DelayPolicy
from tests.e2e.harness import CRAWLER, Running, toml
from tests.sinks.values import exchange as page_exchange
from tests.site import Reply, Request, Site

JSON = {"Content-Type": "application/json"}


def shop(request: Request) -> Reply | str | None:
    """Products with a price and reviews behind an API, and one image that has two URLs."""
    path = request.path
    if path == "/robots.txt":
        return "User-agent: *\nDisallow: /private" if request.host == "a.test" else None
    if path == "/":
        return "".join(f'<a href="/product/{number}">' for number in range(3))
    if path.startswith("/product/"):
        return f"<h1>Product {path[-1]}</h1><img src=/image/{path[-1]}.png>"
    if path.startswith("/api/"):
        return Reply(json.dumps({"price": int(path[-1]), "method": request.method}), headers=JSON)
    if path.startswith("/image/"):
        return Reply(b"\x89PNG" + b"x" * 5000, headers={"Content-Type": "image/png"})
    if path == "/bomb":
        return Reply(gzip.compress(bytes(5_000_000)), headers={**JSON, "Content-Encoding": "gzip"})
    if path == "/busy":
        return Reply("", 429, {"Retry-After": "300"})
    if path == "/rests":
        return Reply("", 429, {"Retry-After": "4"})
    if path == "/slow":
        time.sleep(5)
    if path == "/breaks":
        raise ConnectionAbortedError
    if path == "/odd":
        return Reply("", 302, {"Location": "mailto:a@b.test"})
    if path == "/moved":
        return Reply("", 302, {"Location": "/api/7"})
    return None


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(shop) as site:
        yield site


@pytest.fixture
def settings(site: Site, tmp_path: Path) -> dict[str, dict[str, Any]]:
    settings = site.settings(tmp_path)
    settings["fetch"]["host_map"] = site.host_map("a.test", "b.test")
    return settings


def test_bytes_that_handlers_hold_are_shared_by_domains() -> None:
    """At the limit, a domain with less than its share goes on, and so does the first page, which must end, unless enough
    will be written."""
    parts: list[Any] = [None] * 9
    requests = ExtraRequests(*parts)

    def hold(visit: PageVisit, mib: int) -> None:
        visit.extras.append(Extra(page_exchange("x", bytes(mib << 20)), "fetch"))
        visit.received_bytes += mib << 20
        requests._hold(visit, visit.extras[-1])

    def visit(domain: str) -> PageVisit:
        leased: Any = SimpleNamespace(domain=domain, in_browser=0)
        return PageVisit(requests, leased)

    first, second, good = map(visit, ("a.test", "b.test", "c.test"))
    hold(first, 60), hold(second, 64), hold(good, 1)
    assert all(map(requests.has_room, (first, second, good)))
    hold(second, 10)
    assert [requests.has_room(one) for one in (first, second, good)] == [True, False, True]
    assert [requests.has_room(visit(domain)) for domain in ("a.test", "b.test", "d.test")] == [False, False, True]
    hold(first, 100)
    first.end()
    assert not requests.has_room(second)
    first.extras.clear()
    assert requests.has_room(second)
    assert requests.held_bytes == {"b.test": 74 << 20, "c.test": 1 << 20}


def crawled(router: Router, settings: dict[str, Any], *seeds: str) -> Crawl:
    crawl = Crawl(seeds or ["http://a.test/"], handlers=router, settings=settings)
    crawl.run()
    return crawl


def test_several_answers_become_one_item(site: Site, settings: dict[str, Any]) -> None:
    router = Router()

    @router.handler("/product/")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        number = page.url[-1]
        price, stock = await crawl.fetch(f"/api/{number}"), await crawl.fetch(f"http://b.test/api/{number}", json={})
        item = {"name": page.select_text("h1"), "price": price.json()["price"], "method": stock.json()["method"]}
        await crawl.push("products", item)

    crawl = crawled(router, settings)
    found = sorted(crawl.items("products"), key=lambda item: item["price"])
    assert found == [{"name": f"Product {number}", "price": number, "method": "POST"} for number in range(3)]
    assert [site.times(f"/api/{number}", host=host) for host in ("a.test", "b.test") for number in range(3)] == [1] * 6
    assert site.times("/robots.txt", host="b.test") == 1
    assert crawl.stats.done == {"ok": 4}
    assert counted(settings) == ({"fetch": 6}, 4 + 6)


def lines_in(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def counted(settings: dict[str, Any]) -> tuple[dict[str, int], int]:
    """What Redis counts: requests of handlers by kind, and all for URLs."""

    async def counts() -> Counts:
        async with open_store(load(None, settings).replica) as store:
            return await Counters(store, (await open_crawl(store, "crawl")).keys).counts()

    found = asyncio.run(counts())
    return found.extras, found.requests


def test_what_is_not_allowed_or_not_there_is_an_exception_with_its_reason(site: Site, settings: dict[str, Any]) -> None:
    router, reasons = Router(), list[str]()

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        for url in ("/private/x", "http://10.0.0.1/", "http://nowhere.invalid/", "ftp://a.test/", "/odd"):
            try:
                await crawl.fetch(url)
            except (Refused, FetchFailed) as error:
                reasons.append(error.reason)
        missing = await crawl.fetch("/missing")
        moved = await crawl.fetch("/moved", data={"q": "x"})
        await crawl.push("ends", {"missing": missing.status, "moved": moved.json(), "url": moved.url})

    crawl = crawled(router, settings)
    assert reasons == ["robots", "forbidden_address", "no_such_host", "bad_url", "bad_url"]
    (end,) = crawl.items("ends")
    assert end == {"missing": 404, "moved": {"price": 7, "method": "GET"}, "url": "http://a.test/api/7"}
    assert not site.times("/private/x")


def test_an_answer_is_decompressed_up_to_the_limit(settings: dict[str, Any]) -> None:
    router, sizes = Router(), list[Any]()

    @router.handler("/(product/0|bomb)$")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        answer = await crawl.fetch("/bomb")
        sizes.extend((one.cut, len(one.body)) for one in (answer, page) if one.url.endswith("/bomb"))
        with pytest.raises(Refused, match="truncated"):
            await crawl.download("/bomb")

    settings["limits"] = {"max_decoded": 100_000}
    assert crawled(router, settings, "http://a.test/product/0", "http://a.test/bomb").stats.done == {"ok": 2}
    assert sizes == [(("decoded",), 100_000)] * 3


def test_a_plain_function_cannot_make_requests_and_is_told(settings: dict[str, Any]) -> None:
    router = Router()

    @router.handler("/product/0")
    def plain(page: ParsedPage, crawl: Handle) -> None:
        crawl.fetch("/api/0")

    assert crawled(router, settings).stats.dead == {"handler_failed": 1}


def test_each_request_waits_for_its_turn_also_at_a_domain_that_is_crawled(
    site: Site, settings: dict[str, Any], tmp_path: Path
) -> None:
    """The sites' logs are the arbiter, and the audit of the archive says the same."""
    router = Router()

    @router.handler("/product/")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        other = "http://b.test" if "a.test" in page.url else "http://a.test"
        await asyncio.gather(*(crawl.fetch(f"{origin}/api/{page.url[-1]}") for origin in ("", other)))

    settings["politeness"]["delay"] = 0.3
    crawl = crawled(router, settings, "http://a.test/", "http://b.test/")
    assert crawl.stats.done == {"ok": 8}
    for host in ("a.test", "b.test"):
        times = [request.at for request, _ in site.answered if request.host == host]
        asked = {request.path for request, _ in site.answered if request.host == host}
        numbers = range(3)
        assert asked == {"/robots.txt", "/", *(f"/{name}/{n}" for name in ("product", "api") for n in numbers)}
        assert len(times) >= 1 + 4 + 6
        assert min(later - earlier for earlier, later in pairwise(times)) > 0.29
    found = audit(read_archive(tmp_path / "out"), Rules(DelayPolicy(0.3), None, "peercrawl"))
    assert found.requests >= 22
    assert found.breaches == []


def test_requests_keep_their_order_also_if_the_first_needs_several_turns(site: Site, settings: dict[str, Any]) -> None:
    """That fetches the robots.txt."""
    router = Router()

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        await asyncio.gather(*(crawl.fetch(f"http://b.test/api/{number}") for number in range(4)))

    settings["politeness"]["delay"] = 0.3
    crawled(router, settings, "http://a.test/product/0")
    asked = [request.path for request, _ in site.answered if request.host == "b.test"]
    assert list(dict.fromkeys(asked)) == ["/robots.txt", *(f"/api/{number}" for number in range(4))]


def test_requests_keep_their_order_while_the_domain_is_leased_now_and_then(
    site: Site, settings: dict[str, Any]
) -> None:
    router = Router()

    @router.handler("a.test/product/")
    async def own(page: ParsedPage, crawl: Handle) -> None:
        await crawl.fetch("/api/0")
        if (number := int(page.url[-1])) < 6:
            await crawl.enqueue(f"/product/{number + 1}")

    @router.handler("b.test/product/")
    async def other(page: ParsedPage, crawl: Handle) -> None:
        await asyncio.gather(*(crawl.fetch(f"http://a.test/api/1?{number}") for number in range(20)))

    settings["politeness"]["delay"] = 0.1
    crawled(router, {**settings, "handlers": {"timeout": 60}}, "http://a.test/product/0", "http://b.test/product/0")
    asked = [request.path for request, _ in site.answered if request.path.startswith("/api/1")]
    assert list(dict.fromkeys(asked)) == [f"/api/1?{number}" for number in range(20)]


@pytest.mark.long
def test_own_requests_of_a_domain_that_makes_way_do_not_wait_for_all_others(
    site: Site, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lease, and so its pages, wait for them."""
    router, is_leased, others_wait = Router(), asyncio.Event(), asyncio.Event()

    @router.handler("a.test/product/")
    async def own(page: ParsedPage, crawl: Handle) -> None:
        is_leased.set()
        await others_wait.wait()
        await crawl.fetch("/api/1")

    @router.handler("b.test/product/")
    async def other(page: ParsedPage, crawl: Handle) -> None:
        await is_leased.wait()
        requests = [asyncio.ensure_future(crawl.fetch(f"http://a.test/api/2?{number}")) for number in range(20)]
        await asyncio.sleep(0.5)
        others_wait.set()
        await asyncio.gather(*requests)

    async def note_wanted_by_another(reservations: Reservations, domain: str, now_ms: int) -> None:
        reservations._replica = "another"
        await note_wanted(reservations, domain, now_ms)

    settings["politeness"]["delay"] = 0.2
    monkeypatch.setattr(ExtraRequests, "_is_usable", lambda *_: False)
    note_wanted = Reservations._note_wanted
    monkeypatch.setattr(Reservations, "_note_wanted", note_wanted_by_another)
    crawled(router, {**settings, "handlers": {"timeout": 60}}, "http://a.test/product/0", "http://b.test/product/0")
    asked = [request.path for request, _ in site.answered if request.path.startswith("/api/")]
    assert asked.index("/api/1") < len(asked) - 1


def test_answers_are_archived_with_their_page_and_are_no_pages(settings: dict[str, Any], tmp_path: Path) -> None:
    router = Router()

    @router.handler("/product/1")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        await crawl.fetch("/product/2")

    crawled(router, {**settings, "limits": {"max_pages": 3}})
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    kinds = {
        (record.headers["WARC-Target-URI"].rpartition("/")[2], record.headers.get("WARC-Resource-Type"))
        for record in records_in(str(warc))
        if record.headers.get("WARC-Page-ID")
    }
    assert kinds == {("1", None), ("2", "fetch")}
    assert len(list(read_rows(warc, lambda *problem: None))) == 3


async def test_a_program_without_handlers_makes_requests_in_its_loop(
    site: Site, settings: dict[str, Any], tmp_path: Path
) -> None:
    """Also for the last pages, when nothing is left to crawl."""
    settings["politeness"]["delay"] = 0.1
    prices = {}
    async with Crawl("http://a.test/", settings=settings) as crawl:
        async for page in crawl:
            if "/product/" in page.url:
                await asyncio.sleep(0.5)
                prices[page.url[-1]] = (await crawl.fetch(f"http://b.test/api/{page.url[-1]}")).json()["price"]
        with pytest.raises(RuntimeError, match="has ended"):
            await crawl.fetch("http://b.test/api/0")
    assert prices == {"0": 0, "1": 1, "2": 2}
    times = [request.at for request, _ in site.answered if request.host == "b.test"]
    assert min(later - earlier for earlier, later in pairwise(times)) > 0.09
    (warc,) = (tmp_path / "out").glob("*.warc.gz")
    rows = [row.page.url for row in read_rows(warc, lambda *problem: None)]
    assert len(rows) == 4
    assert audit(read_archive(tmp_path / "out"), Rules(DelayPolicy(0.1), None, "peercrawl")).ok


def test_a_download_is_a_file_once_for_each_content(site: Site, settings: dict[str, Any], tmp_path: Path) -> None:
    router = Router()

    @router.handler("/product/")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        number = page.url[-1]
        files = [await crawl.download(url) for url in (f"/image/{number}.png", "/image/0.png")]
        await crawl.push("files", {"names": [file.path for file in files], "type": files[0].content_type})
        with pytest.raises(Refused, match="http_404"):
            await crawl.download("/missing.png")

    crawl = crawled(router, settings)
    content = b"\x89PNG" + b"x" * 5000
    digest = hashlib.sha256(content).hexdigest()
    name = f"files/{digest[:2]}/{digest}.png"
    assert list(crawl.items("files")) == [{"names": [name, name], "type": "image/png"}] * 3
    assert [path.name for path in (tmp_path / "out" / "files").rglob("*") if path.is_file()] == [f"{digest}.png"]
    assert (tmp_path / "out" / name).read_bytes() == content
    assert site.times("/image/0.png") == 1


def crawl_by_two_replicas(
    folder: Path, app: str, hosts: list[str], pages: list[str], delay: float, handlers: dict[str, int]
) -> Site:
    """The site, after `pages` of its `hosts` were crawled, and politely. `app`: the code of a router."""
    (folder / "app.py").write_text(app)
    (folder / "seeds.txt").write_text("\n".join(pages))
    with Site(shop) as site:
        tables = {
            "fetch": {"host_map": site.host_map(*hosts)},
            "politeness": {"delay": delay},
            "handlers": {"app": "app:router", **handlers},
        }
        (folder / "crawl.toml").write_text(toml(tables))
        words = [*CRAWLER, "crawl", "-f", "seeds.txt", "--settings", "crawl.toml", "--replicas", "2"]
        done = Running(words, folder, "crawl", {}).wait(300)
    assert done.code == 0, done.err
    found = audit(read_archive(folder / "crawl-out"), Rules(DelayPolicy(delay), None, "peercrawl"))
    assert found.breaches == []
    return site


@pytest.mark.long
def test_pages_of_two_replicas_that_request_each_others_sites_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """More pages than may be handled at a time, so most of the requested sites have pages that wait for that."""
    app = """
from crawler import Handle, ParsedPage, Router

router = Router()

@router.handler()
async def page(page: ParsedPage, crawl: Handle) -> None:
    answers = [await crawl.fetch(f"http://s{number}.test/api/{number}") for number in range(4)]
    await crawl.push("sums", {"url": page.url, "sum": sum(answer.json()["price"] for answer in answers)})
"""
    hosts = [f"s{number}.test" for number in range(16)]
    pages = [f"http://{host}/product/{number}" for host in hosts for number in range(2)]
    crawl_by_two_replicas(tmp_path, app, hosts, pages, 0.05, {"concurrency": 3, "timeout": 90})
    items = [item for line in lines_in(tmp_path / "crawl-out") for item in line["items"]["sums"]]
    assert sorted(item["url"] for item in items) == sorted(pages)
    assert {item["sum"] for item in items} == {6}


@pytest.mark.long
def test_pages_of_a_site_go_on_while_handlers_of_another_request_it_all_the_time(tmp_path: Path) -> None:
    """Whichever of two replicas has its lease: about half of eight sites are those of the other one."""
    app = """
import asyncio
from crawler import Handle, ParsedPage, Router

router = Router()

@router.handler("//many.test/")
async def page(page: ParsedPage, crawl: Handle) -> None:
    for turn in range(2):
        await asyncio.gather(*(crawl.fetch(f"http://s{number}.test/api/{turn}") for number in range(8)))
"""
    hosts = ["many.test", *(f"s{number}.test" for number in range(8))]
    pages = [f"http://{host}/product/{number}" for host in hosts for number in range(40)]
    site = crawl_by_two_replicas(tmp_path, app, hosts, pages, 0.1, {"timeout": 300})
    for host in hosts[1:]:
        asked = "".join(request.path[1] for request, _ in site.answered if request.host == host)
        meanwhile = asked[: asked.rindex("a")].split("a", 10)[-1]  # without the first ten: the sites begin one by one
        assert meanwhile.count("p") >= 6, (host, asked)


@pytest.mark.long
def test_a_handler_that_took_too_long_for_a_reservation_is_called_again(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also without `handlers.tries`: the domain may be free later."""
    router, tries, reserve = Router(), list[int](), Reservations.reserve

    async def refused_at_first(self: Reservations, domain: str, max_wait_ms: int, hold_ms: float) -> Any:
        refused = ReservationRefused(self._clock.now_ms() + 1000)
        return await reserve(self, domain, max_wait_ms, hold_ms) if tries[-1] else refused

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        tries.append(page.tries)
        await crawl.fetch("http://b.test/api/0")

    monkeypatch.setattr(Reservations, "reserve", refused_at_first)
    own = {**settings, "handlers": {"timeout": 10, "tries": 1}, "politeness": {"delay": 0, "backoff_base": 0.1}}
    assert crawled(router, own, "http://a.test/product/0").stats.done == {"ok": 1}


def test_a_handler_that_waited_for_no_reservation_is_not_called_again(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    router, tries = Router(), list[int]()

    async def reserved_at_once(self: Reservations, domain: str, max_wait_ms: int, hold_ms: float) -> Reservation:
        now_ms = self._clock.now_ms()
        return Reservation(domain, now_ms, now_ms + 60_000, 0)

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        tries.append(page.tries)
        await crawl.fetch("http://b.test/api/0")
        await crawl.fetch("/rests")
        await crawl.fetch("/api/0")  # too late

    monkeypatch.setattr(Reservations, "reserve", reserved_at_once)
    settings["politeness"]["tries"] = 2
    crawled(router, {**settings, "handlers": {"timeout": 3, "tries": 1}}, "http://a.test/product/0")
    assert tries == [0]


@pytest.mark.long
def test_a_handler_that_others_were_in_front_of_for_too_long_is_called_again(settings: dict[str, Any]) -> None:
    """Three make twelve requests of half a second, in six seconds. One alone has time enough."""
    router, tries = Router(), list[int]()

    @router.handler("/product/")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        tries.append(page.tries)
        if not page.tries:
            await asyncio.sleep(1.5)  # until all three are here
        for number in range(4):
            await crawl.fetch(f"/api/{number}")

    settings["politeness"] = {"delay": 0.5, "backoff_base": 0.1, "tries": 15}
    assert crawled(router, {**settings, "handlers": {"timeout": 6, "tries": 1}}).stats.done == {"ok": 4}
    assert max(tries) > 0


def test_a_reservation_ends_with_the_time_of_the_handler(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the replica is killed, others need not wait for as long as a request may take."""
    router, held_ms, reserve = Router(), list[float](), Reservations.reserve

    async def noting(self: Reservations, domain: str, max_wait_ms: int, hold_ms: float) -> Any:
        held_ms.append(hold_ms)
        return await reserve(self, domain, max_wait_ms, hold_ms)

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        await crawl.fetch("http://b.test/api/0")

    monkeypatch.setattr(Reservations, "reserve", noting)
    crawl = crawled(router, {**settings, "handlers": {"timeout": 20}}, "http://a.test/product/0")
    assert crawl.stats.done == {"ok": 1}
    assert held_ms
    assert all(0 < ms <= 22_000 for ms in held_ms)


@pytest.mark.long
def test_a_page_loses_a_try_if_the_site_that_its_handler_asks_takes_too_long(settings: dict[str, Any]) -> None:
    """Otherwise it would be fetched again forever."""
    router, tries = Router(), list[int]()

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        tries.append(page.tries)
        if len(tries) < 5:
            await crawl.fetch("http://b.test/slow")

    own = {**settings, "handlers": {"timeout": 2}, "politeness": {"delay": 0, "backoff_base": 0.1, "tries": 3}}
    crawl = crawled(router, own, "http://a.test/product/0")
    assert crawl.stats.dead == {"handler_timeout": 1}
    assert tries == list(range(len(tries)))


def test_requests_end_with_the_time_of_the_handler(site: Site, settings: dict[str, Any]) -> None:
    """One that makes a thousand is not polite to wait for, and one that nobody awaits is not sent later."""
    router, asked = Router(), list[asyncio.Task[Any]]()

    @router.handler("/product/0")
    async def many(page: ParsedPage, crawl: Handle) -> None:
        for number in range(1000):
            await crawl.fetch(f"/api/{number}")

    @router.handler("/product/1")
    async def forgetful(page: ParsedPage, crawl: Handle) -> None:
        asked.append(asyncio.ensure_future(crawl.fetch("/api/forgotten")))

    settings["politeness"]["delay"] = 0.3
    crawl = crawled(router, {**settings, "handlers": {"timeout": 2, "tries": 1}})
    assert crawl.stats.done == {"ok": 3}
    assert list(crawl.stats.dead) in (["handler_timeout"], ["handler_failed"])
    assert asked[0].cancelled()
    assert not site.times("/api/forgotten")


def test_a_handler_that_catches_all_refusals_ends_with_its_time(site: Site, settings: dict[str, Any]) -> None:
    settings["handlers"] = {"timeout": 1}
    settings["politeness"]["tries"] = 1
    router = Router()

    @router.handler("/product/0")
    async def stubborn(page: ParsedPage, crawl: Handle) -> None:
        while True:
            try:
                await crawl.fetch("/private/x")
            except BaseException:
                continue

    crawl = crawled(router, settings)
    assert crawl.stats.done == {"ok": 3}
    assert crawl.stats.dead == {"handler_timeout": 1}


def test_a_task_that_outlives_its_page_makes_no_more_requests(site: Site, settings: dict[str, Any]) -> None:
    """Nobody would archive them."""
    router, is_over, asked = Router(), asyncio.Event(), list[asyncio.Task[Any]]()

    @router.handler("/product/0")
    async def first(page: ParsedPage, crawl: Handle) -> None:
        async def late() -> None:
            await is_over.wait()
            await crawl.fetch("http://b.test/api/0")

        await crawl.fetch("http://b.test/api/1")
        asked.append(asyncio.create_task(late()))
        await crawl.enqueue("/product/1")

    @router.handler("/product/1")
    async def second(page: ParsedPage, crawl: Handle) -> None:
        await asyncio.sleep(1)  # b.test has a turn at once
        is_over.set()
        with pytest.raises(Refused, match="interrupted"):
            await asked[0]

    assert crawled(router, settings, "http://a.test/product/0").stats.done == {"ok": 2}
    assert not site.times("/api/0", host="b.test")


def test_a_failure_that_is_ours_costs_the_page_no_try(
    site: Site, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator's proxy is away, so the page is fetched again when that may have passed."""
    monkeypatch.setattr("crawler.worker.request.FIRST_PAUSE_S", 0.2)
    router, calls = Router(), list[str]()

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        calls.append(page.url)
        if len(calls) < 3:
            await crawl.fetch("http://proxied.test/api/0")
        await crawl.push("tries", {"tries": page.tries})

    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        rules = [{"host": "proxied.test", "proxy": proxy, "proxy_dns": True}]
        crawl = crawled(router, {**settings, "requests": rules, "handlers": {"tries": 1}})
    assert crawl.stats.done == {"ok": 4}
    assert list(crawl.items("tries")) == [{"tries": 0}]
    assert site.times("/product/0") == 3


def test_a_handler_waits_no_longer_than_it_may_for_a_site_that_rests(site: Site, settings: dict[str, Any]) -> None:
    """Its site answers 429, so the domain backs off, and the next request would come too late."""
    router, reasons = Router(), list[str]()

    @router.handler("/product/0")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        answer = await crawl.fetch("/busy")
        reasons.append(str(answer.status))
        try:
            await crawl.fetch("/api/0")
        except Refused as error:
            reasons.append(error.reason)

    crawled(router, settings, "http://a.test/product/0")
    assert reasons == ["429", "too_late"]
    assert not site.times("/api/0")


def test_archived_answers_give_items_again_without_a_request(
    site: Site, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other fields of the same answers, with handlers that were changed since."""
    app = """
from crawler import Handle, ParsedPage, Router

router = Router()

@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    first, second = await crawl.fetch("/api/1"), await crawl.fetch("/moved")
    await crawl.push("items", {"url": page.url, "FIELD": [first.json()["price"], second.json()["price"]]})
"""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "before.py").write_text(app.replace("FIELD", "old"))
    (tmp_path / "after.py").write_text(app.replace("FIELD", "new"))
    Crawl("http://a.test/", settings={**settings, "handlers": {"app": "before:router"}}).run()
    asked = len(site.asked)
    words = ["export", "out", "--format", "jsonl", "--app", "after:router", "--out", "again"]
    done = CliRunner().invoke(commands, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = [item for line in lines_in(tmp_path / "again") for item in (line["items"] or {}).get("items", ())]
    assert [item["new"] for item in found] == [[1, 7]] * 3
    assert len(site.asked) == asked


def test_a_page_is_fetched_again_if_its_handler_fails_because_a_site_did(site: Site, settings: dict[str, Any]) -> None:
    """Also without `handlers.tries`: as for the page itself, a broken connection may pass, and a 404 does not."""
    router, calls = Router(), list[str]()

    @router.handler("/product/")
    async def product(page: ParsedPage, crawl: Handle) -> None:
        calls.append(page.url[-1])
        answer = await crawl.fetch("/breaks" if calls.count("0") < 3 and page.url[-1] == "0" else "/api/1")
        await crawl.push("prices", {"url": page.url, **answer.json(), "tries": page.tries})
        if page.url[-1] == "1":
            raise ValueError("wrong")

    settings["politeness"] |= {"backoff_base": 0.1, "tries": 4}
    crawl = crawled(router, settings)
    assert sorted(calls) == ["0", "0", "0", "1", "2"]
    assert {item["url"][-1]: item["tries"] for item in crawl.items("prices")} == {"0": 2, "2": 0}
    assert crawl.stats.dead == {"handler_failed": 1}
