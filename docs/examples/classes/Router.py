from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/products$")
async def products(page: ParsedPage, crawl: Handle) -> None:
    await crawl.enqueue(page.select("li a"), label="product", payload={"shop": 7})
    await crawl.enqueue("/none")


@router.handler(label="product")
def product(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("products", {"name": page.select_text("h1"), "shop": page.payload["shop"]})


@router.on_failure()
async def failed(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("failures", {"url": page.url, "reason": page.reason})


crawl = Crawl("http://shop.test/products", handlers=router)
print(crawl.run().items)  # {'products': 8, 'failures': 1}
