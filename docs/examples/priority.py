from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/products")
async def products(page: ParsedPage, crawl: Handle) -> None:
    await crawl.enqueue(page.select("li.product:has(.sale) a"), priority=10)


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", {"name": page.select_text("h1")})


Crawl("http://shop.test/products", handlers=router).run()
