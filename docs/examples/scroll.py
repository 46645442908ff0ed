from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler(content_type="application/json")
async def quotes(page: ParsedPage, crawl: Handle) -> None:
    data = page.json()
    await crawl.push("items", [{"quote": quote["text"]} for quote in data["quotes"]])
    if data["has_next"]:
        await crawl.enqueue(f"?page={data['page'] + 1}")


Crawl("http://quotes.test/api/quotes?page=1", handlers=router).run()
