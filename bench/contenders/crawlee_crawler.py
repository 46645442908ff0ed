"""The same crawl with crawlee for Python. Run by `bench.contenders`.

Arguments: the file for the JSON lines, seeds.
"""

import asyncio
import json
import logging
import sys
from typing import Any

from crawlee import ConcurrencySettings  # type: ignore[import-not-found]
from crawlee.crawlers import ParselCrawler  # type: ignore[import-not-found]
from crawlee.http_clients import ImpitHttpClient  # type: ignore[import-not-found]
from crawlee.storage_clients import MemoryStorageClient  # type: ignore[import-not-found]

CONCURRENCY = 64


async def crawl(out: str, seeds: list[str]) -> None:
    options: dict[str, Any] = {
        # In its favour: its file store keeps a file a request.
        "storage_client": MemoryStorageClient(),
        "http_client": ImpitHttpClient(verify=False),
        "respect_robots_txt_file": True,
        "concurrency_settings": ConcurrencySettings(
            min_concurrency=CONCURRENCY, max_concurrency=CONCURRENCY, desired_concurrency=CONCURRENCY
        ),
        "max_request_retries": 0,
        "configure_logging": False,
    }
    logging.disable(logging.ERROR)
    crawler = ParselCrawler(**options)
    with open(out, "w", encoding="utf-8") as lines:  # noqa: ASYNC230, PTH123 - as the others write it

        @crawler.router.default_handler  # type: ignore[untyped-decorator]
        async def page(context: Any) -> None:
            title = context.selector.css("title::text").get()
            links = await context.extract_links(strategy="same-hostname")
            urls = [link.url for link in links]
            lines.write(json.dumps({"url": context.request.url, "title": title, "links": urls}) + "\n")
            await context.add_requests(links)

        await crawler.run(seeds)


def main(out: str, *seeds: str) -> None:
    asyncio.run(crawl(out, list(seeds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
