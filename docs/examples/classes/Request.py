from crawler import Crawl, Handle, ParsedPage, Request, Router

router = Router()


@router.handler("/search$")
async def found(page: ParsedPage, crawl: Handle) -> None:
    await crawl.drop()
    for text in page.select("span.text"):
        await crawl.push("quotes", {"text": text.text})


search = Request("http://quotes.test/search", data={"q": "life", "page": 1}, retry=True)
crawl = Crawl([search], handlers=router)
print(crawl.run().items)  # {'quotes': 4}
