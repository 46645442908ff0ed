"""Labels and payloads stay with their URLs: through redirects, failed tries, packed queues and another number of shards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler import Crawl, Handle, ParsedPage, Router
from frontier.entries import tag_of
from tests.site import Reply, Request, Site

MANY = 60


class Shop(Site):
    """The root, products, redirects to products, and pages that fail once."""

    def respond(self, request: Request) -> Reply | None:
        path = request.path
        if path.startswith("/moved/"):
            return Reply(status=302, headers={"Location": path.replace("/moved/", "/target/")})
        if path.startswith("/fails/") and path not in self.asked:
            return Reply(status=500)
        return None if path == "/robots.txt" else Reply()


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Shop() as shop:
        yield shop


@pytest.fixture
def settings(shop: Shop, tmp_path: Path) -> dict[str, dict[str, Any]]:
    of_crawl = {"politeness": {"delay": 0, "backoff_base": 0.1}, "frontier": {"pack_above": 10, "batch": 4}}
    return shop.settings(tmp_path) | of_crawl


router = Router()


@router.handler(label="product")
def product(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("products", {"url": page.url, "label": page.label, "payload": page.payload})


@router.handler(r"test/$")
def root(page: ParsedPage, crawl: Handle) -> None:
    for number in range(MANY):
        kind = ("plain", "moved", "fails")[number % 3]
        crawl.enqueue(f"/{kind}/{number}", label="product", payload={"number": number, "text": "a b\n"})
    crawl.enqueue("/unlabelled")


@router.handler()
def other(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("others", {"url": page.url})


async def test_a_label_and_a_payload_arrive_with_their_page(settings: dict[str, Any]) -> None:
    async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    found = {item["url"]: item for item in crawl.items("products")}
    assert len(found) == MANY
    for url, item in found.items():
        number = int(url.rpartition("/")[2])
        assert item["label"] == "product"
        assert item["payload"] == {"number": number, "text": "a b\n"}
    assert {url.split("/")[3] for url in found} == {"plain", "target", "fails"}
    assert [item["url"] for item in crawl.items("others")] == ["http://a.test/unlabelled"]


async def test_links_of_a_page_with_a_base_are_joined_to_it_and_those_that_are_not_followed_are_named_once(
    shop: Shop, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    router, based = Router(), Reply("<base href=/shop/><a href=1 class=next>1</a><a>2</a>")

    @router.handler()
    def listing(page: ParsedPage, crawl: Handle) -> None:
        crawl.enqueue([element.attr("href") for element in page.select("a")], label="product")
        crawl.enqueue(["javascript:void(0)", "mailto:a@a.test", "/x?" + "y" * 2_000])

    shop.respond = lambda request: based if request.path == "/" else None  # type: ignore[method-assign]
    with caplog.at_level("WARNING", "crawler"):
        async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
            await crawl.finish()
    assert set(shop.asked) == {"/robots.txt", "/", "/shop/1"}
    told = [record.fields for record in caplog.records if record.message == "links_not_followed"]  # type: ignore[attr-defined]
    assert [(fields["handler"], fields["reason"], fields["first"][:24]) for fields in told] == [
        (told[0]["handler"], "scheme", "javascript:void(0)"),
        (told[0]["handler"], "length", "http://a.test/x?yyyyyyyy"),
    ]


@pytest.mark.parametrize("is_in_page", [True, False])
async def test_links_of_handlers_to_domains_that_have_no_seed_are_named_once(
    shop: Shop, settings: dict[str, Any], caplog: pytest.LogCaptureFixture, is_in_page: bool
) -> None:
    router, pages = Router(), {"/": "<a href=/1>1</a><a href=http://c.test/>c</a>", "/1": "<a href=/2>2</a>", "/2": "2"}

    @router.handler("/[12]$" if is_in_page else "/2$")  # one page suffices
    def listing(page: ParsedPage, crawl: Handle) -> None:
        crawl.enqueue("http://c.test/" if is_in_page else ["http://b.test/other", "http://d.test/"])

    shop.respond = lambda request: Reply(pages.get(request.path, ""))  # type: ignore[method-assign]
    settings["fetch"]["host_map"].append(settings["fetch"]["host_map"][0].replace("a.test", "b.test"))
    with caplog.at_level("WARNING", "crawler"):
        async with Crawl(["http://a.test/", "http://b.test/"], handlers=router, settings=settings) as crawl:
            await crawl.finish()
    assert ("/other" in shop.asked) is not is_in_page
    told = [record.fields for record in caplog.records if record.message == "links_not_followed"]  # type: ignore[attr-defined]
    first = "http://c.test/" if is_in_page else "http://d.test/"
    assert [(fields["reason"], fields["first"]) for fields in told] == [("outside", first)]


async def test_a_link_to_the_domain_of_another_seed_gets_its_label(shop: Shop, settings: dict[str, Any]) -> None:
    router, labels = Router(), set[str]()

    @router.handler("a.test/next$")
    def listing(page: ParsedPage, crawl: Handle) -> None:
        crawl.enqueue("http://b.test/1", label="product")

    @router.handler("b.test/1$")
    def product(page: ParsedPage, crawl: Handle) -> None:
        labels.add(page.label)
        crawl.enqueue("http://a.test/next")

    link = "<a href=http://b.test/1>1</a>"
    shop.respond = lambda request: Reply(link if request.host == "a.test" and request.path == "/" else "")  # type: ignore[method-assign]
    settings["fetch"]["host_map"].append(settings["fetch"]["host_map"][0].replace("a.test", "b.test"))
    async with Crawl(["http://a.test/", "http://b.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert labels == {"", "product"}


async def test_a_label_without_a_handler_is_named_once(
    settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    router = Router()

    @router.handler(r"test/$")
    def root(page: ParsedPage, crawl: Handle) -> None:
        crawl.enqueue(["/plain/1", "/plain/2"], label="prodcut")
        crawl.enqueue("/plain/3", label="image")

    @router.handler(label="image", content_type="image/*")
    def image(page: ParsedPage, crawl: Handle) -> None:
        pass

    with caplog.at_level("WARNING", "crawler"):
        async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
            await crawl.finish()
    told = [record.fields for record in caplog.records if record.message == "label_without_handler"]  # type: ignore[attr-defined]
    assert [fields["label"] for fields in told] == ["prodcut"]


async def test_the_lines_of_pages_have_what_a_repair_needs(settings: dict[str, Any], tmp_path: Path) -> None:
    async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    (file,) = (tmp_path / "out").glob("*.pages.jsonl")
    lines = {line["url"]: line for line in map(msgspec.json.decode, file.read_bytes().splitlines())}
    (by_tag,) = (line["followed"] for line in lines.values() if line["followed"] is not None)
    tag = tag_of("product", {"number": 3, "text": "a b\n"})
    assert (by_tag[tag], by_tag[""]) == (["http://a.test/plain/3"], ["http://a.test/unlabelled"])
    of_target = lines["http://a.test/target/4"]
    assert (of_target["label"], of_target["payload"]) == ("product", {"number": 4, "text": "a b\n"})
    assert lines["http://a.test/"]["label"] is lines["http://a.test/"]["payload"] is None


async def test_of_several_labels_for_a_url_the_first_one_counts(settings: dict[str, Any]) -> None:
    router, labels = Router(), list[str]()

    @router.handler("/$")
    def listing(page: ParsedPage, crawl: Handle) -> None:
        for label in ("first", "second"):
            crawl.enqueue("/plain/1", label=label, unique_key="again")

    @router.handler("/plain/")
    def plain(page: ParsedPage, crawl: Handle) -> None:
        labels.append(page.label)

    async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert "first" in labels
    assert "second" not in labels


async def test_a_url_that_was_queued_without_a_label_is_queued_once_more_with_it(
    shop: Shop, settings: dict[str, Any]
) -> None:
    router, found = Router(), set[tuple[str, str]]()
    pages = {"/": "<a href=/early>1</a>", "/late": "<a href=/early>1</a><a href=/late>2</a>"}

    @router.handler()
    def any_page(page: ParsedPage, crawl: Handle) -> None:
        found.add((page.url.removeprefix("http://a.test"), page.label))
        if page.url.endswith("/early"):
            crawl.enqueue("/list")
        if page.url.endswith("/list"):
            crawl.enqueue("/moved/early", label="moved")
        if page.url.endswith("/list") or page.label:
            for label in ("member", "other"):
                crawl.enqueue(["/early", "/late"], label=label)

    moved = Reply(status=302, headers={"Location": "/early"})
    shop.respond = lambda request: moved if "moved" in request.path else Reply(pages.get(request.path, ""))  # type: ignore[method-assign]
    async with Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert found == {
        *(("/", ""), ("/early", ""), ("/list", "")),
        *(("/early", "moved"), ("/early", "member"), ("/early", "other"), ("/late", "member"), ("/late", "other")),
    }
