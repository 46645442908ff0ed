import scrapy


class AuthorsSpider(scrapy.Spider):
    name = "authors"
    start_urls = ["http://quotes.test/page/1/"]

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield response.follow(
                quote.css("a.about")[0],
                callback=self.parse_author,
                cb_kwargs={"text": quote.css("span.text::text").get()},
                dont_filter=True,
            )
        yield from response.follow_all(css="li.next a")

    def parse_author(self, response, text):
        yield {
            "text": text,
            "author": response.css("h3::text").get(),
            "born": response.css(".born::text").get(),
        }
