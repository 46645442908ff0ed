import json

import scrapy


class QuoteSpider(scrapy.Spider):
    name = "quote"
    allowed_domains = ["quotes.test"]
    page = 1
    start_urls = ["http://quotes.test/api/quotes?page=1"]

    def parse(self, response):
        data = json.loads(response.text)
        for quote in data["quotes"]:
            yield {"quote": quote["text"]}
        if data["has_next"]:
            self.page += 1
            url = f"http://quotes.test/api/quotes?page={self.page}"
            yield scrapy.Request(url=url, callback=self.parse)
