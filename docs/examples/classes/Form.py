from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/login$")
async def login(page: ParsedPage, crawl: Handle) -> None:
    form = page.form("form:has([type=password])").fill(username="john", password="secret")
    await crawl.enqueue(form.submit("Login"), label="members")


@router.handler(label="members")
async def members(page: ParsedPage, crawl: Handle) -> None:
    await crawl.drop()
    for text in page.select("span.text"):
        await crawl.push("quotes", {"text": text.text})


cookies = {"origin": "http://quotes.test", "cookies": True}
crawl = Crawl("http://quotes.test/login", handlers=router, settings={"requests": [cookies]})
print(crawl.run().items)  # {'quotes': 4}
