import scrapy


class SaleSpider(scrapy.Spider):
    name = "sale"
    start_urls = ["http://shop.test/products"]
    custom_settings = {"CONCURRENT_REQUESTS": 1}

    def parse(self, response):
        for product in response.css("li.product"):
            yield response.follow(
                product.css("a")[0],
                callback=self.parse_product,
                priority=10 if product.css(".sale") else 0,
            )

    def parse_product(self, response):
        yield {"name": response.css("h1::text").get()}
