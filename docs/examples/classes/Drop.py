from typing import Any

from crawler import Context, Crawl, Drop, Handle, ParsedPage, Router

router = Router()


@router.on_item
def cheap(name: str, item: dict[str, Any], crawl: Context) -> None:
    item["price"] = float(item["price"])
    if item["price"] > 3:
        raise Drop("too expensive")


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("products", {"price": page.select_text(".price")})


crawl = Crawl("http://shop.test/products", handlers=router)
print(crawl.run().items)  # {'products': 2}
