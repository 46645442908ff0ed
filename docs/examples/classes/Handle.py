from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/news$")
async def news(page: ParsedPage, crawl: Handle) -> None:
    await crawl.drop()  # follow only what follows here
    await crawl.enqueue(page.select("a.story"), priority=5, label="story")


@router.handler(label="story")
async def story(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("stories", {"url": page.url, "title": page.select_text("h1")})
    if page.select_text("h1") == "Story 99":
        await crawl.stop("this is the last one")


crawl = Crawl("http://shop.test/news", handlers=router)
print(crawl.run().items)  # {'stories': 3}
