from dataclasses import dataclass

from crawler import Context, Crawl, Handle, ParsedPage, Router


@dataclass
class Shop:
    rate: float = 1.0


router = Router(settings=Shop)


@router.on_start
async def read_names(crawl: Context) -> None:
    crawl.state["wanted"] = {"Product 1", "Product 2"}


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    if page.select_text("h1") in crawl.state["wanted"]:
        price = float(page.select_text(".price") or 0)
        await crawl.push("products", {"price": price * crawl.settings.rate})


crawl = Crawl("http://shop.test/products", handlers=router, settings={"app": {"rate": 2}})
print(crawl.run().items)  # {'products': 2}
