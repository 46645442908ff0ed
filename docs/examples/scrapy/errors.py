import scrapy
from scrapy.spidermiddlewares.httperror import HttpError


class ErrorsSpider(scrapy.Spider):
    name = "errors"
    custom_settings = {"RETRY_TIMES": 1}

    async def start(self):
        for path in ("product/1", "none", "broken", "dropped"):
            yield scrapy.Request(f"http://shop.test/{path}", errback=self.failed)

    def parse(self, response):
        yield {"url": response.url, "status": response.status}

    def failed(self, failure):
        if failure.check(HttpError):
            response = failure.value.response
            yield {"url": response.url, "status": response.status}
        else:
            yield {"url": failure.request.url, "status": 0}
