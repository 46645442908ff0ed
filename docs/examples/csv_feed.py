import csv
import io

from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler(content_type="text/csv")
async def prices(page: ParsedPage, crawl: Handle) -> None:
    for row in csv.DictReader(io.StringIO(page.text, newline=""), delimiter=";", quotechar="'"):
        await crawl.push("items", row)


Crawl("http://shop.test/prices.csv", handlers=router).run()
