import scrapy


class SearchSpider(scrapy.Spider):
    name = "search"

    async def start(self):
        yield self.request(1)

    def request(self, page):
        return scrapy.FormRequest(
            "http://quotes.test/search",
            formdata={"q": "life", "page": str(page)},
            cb_kwargs={"page": page},
        )

    def parse(self, response, page):
        for quote in response.css("div.quote"):
            yield {"quote": quote.css("span.text::text").get()}
        if response.css("li.next"):
            yield self.request(page + 1)
