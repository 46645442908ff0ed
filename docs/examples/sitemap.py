from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", {"name": page.select_text("h1"), "price": page.select_text(".price")})


Crawl("http://shop.test/sitemap.xml", handlers=router).run()
