import scrapy


class TitlesSpider(scrapy.Spider):
    name = "titles"
    start_urls = ["http://site0.test/", "http://site1.test/"]
    custom_settings = {
        "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
        "CONCURRENT_REQUESTS": 100,
        "COOKIES_ENABLED": False,
        "DEPTH_LIMIT": 1,
    }

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
