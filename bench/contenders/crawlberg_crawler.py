"""The same crawl with crawlberg. Run by `bench.contenders`.

Arguments: the file for the JSON lines, seeds.
"""

import asyncio
import json
import sys
from pathlib import Path

import crawlberg  # type: ignore[import-not-found]


async def crawl(out: str, seeds: list[str]) -> None:
    options = {"max_depth": 1, "max_concurrent": 64, "respect_robots_txt": True, "stay_on_domain": True}
    config = crawlberg.CrawlConfig(
        **options, retry_count=0, rate_limit_ms=0, ssrf=crawlberg.SsrfPolicy(deny_private=False)
    )
    found = await crawlberg.batch_crawl(crawlberg.create_engine(config), seeds)
    with Path(out).open("w") as lines:  # noqa: ASYNC230
        for of_seed in found.results:
            for page in of_seed.result.pages if of_seed.result else ():
                links = [link.url for link in page.links]
                lines.write(json.dumps({"url": page.url, "status": page.status_code, "links": links}) + "\n")


def main(out: str, *seeds: str) -> None:
    asyncio.run(crawl(out, list(seeds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
