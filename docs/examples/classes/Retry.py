from crawler import Crawl, Handle, ParsedPage, Retry, Router

router = Router()


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    price = page.select_text(".price")
    if price is None or price == "9.50":
        raise Retry("no price yet", after=0.1)
    await crawl.push("products", {"name": page.select_text("h1"), "price": price})


crawl = Crawl("http://shop.test/product/1", handlers=router)
print(crawl.run().items)  # {'products': 1}
