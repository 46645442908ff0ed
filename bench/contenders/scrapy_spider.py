"""The same crawl with Scrapy, set as its documentation advises for broad crawls. Run by `bench.contenders`.

Arguments: the file for the JSON lines; the URL of a Redis for scrapy-redis, or ""; seeds.
"""

import sys
from urllib.parse import urlsplit

from scrapy import Request, Spider  # type: ignore[import-not-found]
from scrapy.crawler import CrawlerProcess  # type: ignore[import-not-found]
from scrapy.http import HtmlResponse  # type: ignore[import-not-found]
from scrapy.linkextractors import LinkExtractor  # type: ignore[import-not-found]

CONCURRENCY = 64

# https://docs.scrapy.org/en/latest/topics/broad-crawls.html
BROAD = {
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
    "CONCURRENT_REQUESTS": CONCURRENCY,
    "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "LOG_LEVEL": "ERROR",
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": True,
    "TELNETCONSOLE_ENABLED": False,
}


def shared(redis_url: str) -> dict[str, object]:
    """What puts scrapy-redis in the place of scheduler and duplicate filter."""
    return {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "REDIS_URL": redis_url,
    }


class Pages(Spider):  # type: ignore[misc]
    name = "pages"

    def __init__(self, seeds: list[str], **more: object) -> None:
        super().__init__(**more)
        self._seeds = seeds
        self._links = LinkExtractor(allow_domains=[urlsplit(seed).netloc for seed in seeds])

    async def start(self):  # type: ignore[no-untyped-def]
        for seed in self._seeds:
            yield Request(seed)

    def parse(self, response):  # type: ignore[no-untyped-def]
        if not isinstance(response, HtmlResponse):
            yield {"url": response.url, "status": response.status}
            return
        links = [link.url for link in self._links.extract_links(response)]
        title = response.css("title::text").get()
        yield {"url": response.url, "status": response.status, "title": title, "links": links}
        for link in links:
            yield Request(link)


def main(out: str, redis_url: str, *seeds: str) -> None:
    settings = {**BROAD, "FEEDS": {out: {"format": "jsonlines"}}}
    process = CrawlerProcess(settings | (shared(redis_url) if redis_url else {}))
    process.crawl(Pages, seeds=list(seeds))
    process.start()


if __name__ == "__main__":
    main(*sys.argv[1:])
