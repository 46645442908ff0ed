from crawler import Handle, ParsedPage, Router
from crawler.testing import page, run_handler

router = Router()


@router.handler(label="product")
async def product(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("products", {"name": page.select_text("h1")})
    await crawl.enqueue(page.select("a.next"), label="product")


found = page("https://shop.example/1", "<h1>Kettle</h1><a class=next href=/2>", label="product")
result = run_handler(router, found)
print(result.items, result.links)  # {'products': [{'name': 'Kettle'}]} ['https://shop.example/2']
