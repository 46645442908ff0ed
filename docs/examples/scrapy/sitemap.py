from scrapy.spiders import SitemapSpider


class ProductsSpider(SitemapSpider):
    name = "products"
    sitemap_urls = ["http://shop.test/sitemap.xml"]
    sitemap_rules = [("/product/", "parse_product")]

    def parse_product(self, response):
        yield {
            "name": response.css("h1::text").get(),
            "price": response.css(".price::text").get(),
        }
