from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/login$")
async def login(page: ParsedPage, crawl: Handle) -> None:
    form = page.form("form:has([type=password])").fill(username="john", password="secret")
    await crawl.enqueue(form.submit(), label="members")


@router.handler(label="members")
async def members(page: ParsedPage, crawl: Handle) -> None:
    quotes = [{"quote": text.text} for text in page.select("span.text")]
    await crawl.push("items", quotes)
    await crawl.enqueue(page.select("li.next a"), label="members")


Crawl("http://quotes.test/login", handlers=router, cookies=True).run()
