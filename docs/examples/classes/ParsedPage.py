from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/products$")
async def products(page: ParsedPage, crawl: Handle) -> None:
    for product in page.select("li.product"):
        name, image = page.select_text("a", product), page.select_attr("img", "src", product)
        await crawl.push("products", {"name": name, "image": image})
    print(page.status, page.content_type, page.xpath("count(//li)"), page.urls("/product/[12]$"))


@router.handler(content_type="text/csv")
async def prices(page: ParsedPage, crawl: Handle) -> None:
    print(page.text.splitlines()[0])  # id;name;price


@router.handler(content_type="application/json")
async def quotes(page: ParsedPage, crawl: Handle) -> None:
    print(page.json()["has_next"])  # True


urls = ["http://shop.test/products", "http://shop.test/prices.csv", "http://quotes.test/api/quotes?page=1"]
Crawl(urls, handlers=router, settings={"scope": {"max_depth": 0}}).run()
