from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler()
async def products(page: ParsedPage, crawl: Handle) -> None:
    await crawl.drop()
    for product in page.select("li.product"):
        image = await crawl.download(product.select("img")[0])
        await crawl.push("items", {"name": page.select_text("a", product), "path": image.path})


Crawl("http://shop.test/products", handlers=router).run()
