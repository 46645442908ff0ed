from scrapy.spiders import CSVFeedSpider


class PricesSpider(CSVFeedSpider):
    name = "prices"
    start_urls = ["http://shop.test/prices.csv"]
    delimiter = ";"
    quotechar = "'"

    def parse_row(self, response, row):
        yield {"id": row["id"], "name": row["name"], "price": row["price"]}
