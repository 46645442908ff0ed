import scrapy


class NewsSpider(scrapy.Spider):
    name = "news"
    custom_settings = {"JOBDIR": "job"}

    async def start(self):
        yield scrapy.Request("http://shop.test/news", dont_filter=True)

    def parse(self, response):
        yield from response.follow_all(css="a.story", callback=self.parse_story)

    def parse_story(self, response):
        yield {"url": response.url, "title": response.css("h1::text").get()}
