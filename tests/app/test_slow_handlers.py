"""A slow handler does not hold up the next request to its domain, up to a number of pages, and loses nothing at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawler import Crawl, Handle, ParsedPage, Router
from crawler.worker.worker import HANDED_ON
from tests.app.test_crawl import PAGES, tree
from tests.site import Site


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(tree) as site:
        yield site


@pytest.fixture
def settings(site: Site, tmp_path: Path) -> dict[str, dict[str, Any]]:
    return {
        "fetch": {"host_map": site.host_map("a.test")},
        "politeness": {"delay": 0},
        "replica": {"data_dir": str(tmp_path / "data"), "out": str(tmp_path / "out")},
    }


async def test_as_many_pages_of_a_domain_as_may_wait_for_handlers_at_the_same_time(settings: dict[str, Any]) -> None:
    router, running, most = Router(), 0, 0
    all_run = asyncio.Event()

    @router.handler(r"test/$")
    async def root(page: ParsedPage, crawl: Handle) -> None:
        await crawl.enqueue([f"/{number}" for number in range(1, PAGES)])

    @router.handler()
    async def slow(page: ParsedPage, crawl: Handle) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running > HANDED_ON:
            asyncio.get_running_loop().call_later(0.3, all_run.set)  # time for one more than may be
        await all_run.wait()
        running -= 1
        await crawl.push("pages", {"url": page.url})

    async with asyncio.timeout(60), Crawl(["http://a.test/"], handlers=router, settings=settings) as crawl:
        await crawl.finish()
    assert most == HANDED_ON + 1  # the last one holds up the next request
    assert sorted(item["url"] for item in crawl.items("pages")) == sorted(f"http://a.test/{n}" for n in range(1, PAGES))


async def test_the_delay_still_separates_requests(site: Site, settings: dict[str, Any]) -> None:
    router = Router()

    @router.handler()
    async def slow(page: ParsedPage, crawl: Handle) -> None:
        await asyncio.sleep(0.5)

    with_delay = settings | {"politeness": {"delay": 0.1, "response_share": 0}, "limits": {"max_pages": 6}}
    seeds = [f"http://a.test/{number}" for number in range(20, 26)]
    async with asyncio.timeout(60), Crawl(seeds, handlers=router, settings=with_delay) as crawl:
        await crawl.finish()
    asked = [request.at for request, _ in site.answered if request.path != "/robots.txt"]
    gaps = [after - before for before, after in pairwise(asked)]
    assert len(gaps) == 5
    assert min(gaps) >= 0.1
    assert min(gaps) < 0.5
