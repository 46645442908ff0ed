import scrapy


class ImagesSpider(scrapy.Spider):
    name = "images"
    start_urls = ["http://shop.test/products"]
    custom_settings = {
        "ITEM_PIPELINES": {"scrapy.pipelines.files.FilesPipeline": 1},
        "FILES_STORE": "files",
    }

    def parse(self, response):
        for product in response.css("li.product"):
            image = product.css("img::attr(src)").get()
            yield {
                "name": product.css("a::text").get(),
                "file_urls": [response.urljoin(image)],
            }
