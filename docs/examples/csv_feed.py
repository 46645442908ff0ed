from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler(content_type="text/csv")
async def prices(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", page.csv(";", quotechar="'"))


Crawl("http://shop.test/prices.csv", handlers=router).run()
