import itertools

import scrapy

PROXIES = itertools.cycle(["http://127.0.0.1:8001", "http://127.0.0.1:8002"])


class RotateProxies:
    def process_request(self, request, spider):
        request.meta["proxy"] = next(PROXIES)


class ProxiesSpider(scrapy.Spider):
    name = "proxies"
    start_urls = ["http://shop.test/products"]
    custom_settings = {"DOWNLOADER_MIDDLEWARES": {RotateProxies: 350}}

    def parse(self, response):
        yield from response.follow_all(css="li.product a", callback=self.parse_product)

    def parse_product(self, response):
        yield {
            "name": response.css("h1::text").get(),
            "price": response.css(".price::text").get(),
        }
