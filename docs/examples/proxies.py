import itertools

from crawler import Context, Crawl, Handle, OutgoingRequest, ParsedPage, Router

PROXIES = itertools.cycle(["http://127.0.0.1:8001", "http://127.0.0.1:8002"])
router = Router()


@router.before_request
def rotate(request: OutgoingRequest, crawl: Context) -> None:
    request.proxy = next(PROXIES)


@router.handler("/product/")
async def product(page: ParsedPage, crawl: Handle) -> None:
    name, price = page.select_text("h1"), page.select_text(".price")
    await crawl.push("items", {"name": name, "price": price})


Crawl("http://shop.test/products", handlers=router).run()
