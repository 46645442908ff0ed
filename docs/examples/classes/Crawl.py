from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("products", {"name": page.select_text("h1"), "price": page.select_text(".price")})


crawl = Crawl("http://shop.test/products", handlers=router, settings={"scope": {"max_depth": 1}})
crawl.run()
crawl.export("products", "products.csv")
for item in crawl.items("products"):
    print(item["name"], item["price"])
