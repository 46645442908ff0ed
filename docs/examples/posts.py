from crawler import Crawl, Handle, ParsedPage, Request, Router

router = Router()
SEARCH = "http://quotes.test/search"


@router.handler("/search$")
async def found(page: ParsedPage, crawl: Handle) -> None:
    quotes = [{"quote": text.text} for text in page.select("span.text")]
    await crawl.push("items", quotes)
    await crawl.drop()
    if page.select("li.next"):
        number = page.payload.get("page", 1) + 1
        data = {"q": "life", "page": number}
        await crawl.enqueue(SEARCH, data=data, payload={"page": number})


Crawl([Request(SEARCH, data={"q": "life", "page": 1})], handlers=router).run()
