"""What a stranger's bytes can make the crawler remember between requests is limited, in number and in bytes: URLs and host
names of the greatest length, heads without a body, and as many of each as a site likes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from typing import Any

import crawler
import frontier
import politeness
from crawler.browser.page import HttpRequest
from crawler.scope.scope import CHARACTERS_EACH, RecentUrls
from crawler.sinks.warc import WarcRecords
from crawler.worker.rendering import SharedCache
from tests.frontier.helpers import entry
from tests.sinks.values import exchange, settings

LONG = "x" * 2_000


def caches() -> Iterator[tuple[str, Any]]:
    """The functions of all modules that remember their results."""
    for package in (crawler, frontier, politeness):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name.endswith("__main__"):
                continue
            found = vars(importlib.import_module(module.name))
            classes = [one for one in found.values() if inspect.isclass(one) and one.__module__ == module.name]
            for name, one in [*found.items(), *(item for of in classes for item in vars(of).items())]:
                one = one.__func__ if isinstance(one, (classmethod, staticmethod)) else one
                if isinstance(one, _lru_cache_wrapper) and one.__module__ == module.name:
                    yield f"{module.name}.{name}", one


def test_no_function_remembers_results_for_everything_it_was_ever_asked() -> None:
    unlimited = {name for name, one in caches() if one.cache_parameters()["maxsize"] is None}
    with_arguments = {name for name, one in caches() if inspect.signature(one).parameters}
    assert len(with_arguments) > 20
    assert unlimited & with_arguments == OF_OURS


OF_OURS = {
    "crawler.browser.process.find_isolation",
    "crawler.parse.tags._tags_where",
    "crawler.settings.tables.keys_of",
    "crawler.worker.verdict.judge_status",  # three digits
    "frontier.scripts._read",
    "frontier.scripts._guarded_sha",
}
"""Functions whose arguments are never a stranger's, or have few values."""


def test_long_urls_of_links() -> None:
    recent = RecentUrls(1_000)
    for number in range(5_000):
        recent.add(entry(f"https://a.test/{LONG}{number}"))
    assert 0 < len(recent) * 2_000 <= 1_000 * CHARACTERS_EACH + 4_000
    for number in range(5_000):
        recent.add(entry(f"https://a.test/{number}"))
    assert len(recent) >= 500


async def test_responses_without_a_body_that_pages_share() -> None:
    cache = SharedCache(lambda: 0.0, most_bytes=1 << 20)
    fresh = (b"cache-control", b"max-age=3600"), (b"x", LONG.encode() * 10)

    async def send(request: HttpRequest) -> Any:
        return exchange(request.url, b"", headers=fresh, response_head=LONG.encode() * 10)

    for number in range(200):
        await cache.get(HttpRequest(f"https://a.test/{LONG}{number}", kind="script"), send)
    assert 0 < len(cache._kept) <= (1 << 20) // 20_000


def test_long_urls_of_bodies(tmp_path: Any) -> None:
    records = WarcRecords(settings(tmp_path))
    for number in range(50):
        records.exchange(exchange(f"https://a.test/{LONG}{number}", f"{number}".encode() * 2_000))
    records.confirm()
    assert not records._originals
    records.exchange(exchange("https://a.test/", b"0" * 2_000))
    records.confirm()
    assert len(records._originals) == 1
