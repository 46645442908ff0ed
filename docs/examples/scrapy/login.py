import scrapy


class LoginSpider(scrapy.Spider):
    name = "login"
    start_urls = ["http://quotes.test/login"]

    def parse(self, response):
        return scrapy.FormRequest.from_response(
            response,
            formdata={"username": "john", "password": "secret"},
            callback=self.after_login,
        )

    def after_login(self, response):
        for quote in response.css("div.quote"):
            yield {"quote": quote.css("span.text::text").get()}
        for link in response.css("li.next a"):
            yield response.follow(link, self.after_login)
