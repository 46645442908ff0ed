from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/news/")
async def story(page: ParsedPage, crawl: Handle) -> None:
    number = await crawl.store.increment("stories")  # on whichever replica
    await crawl.push("stories", {"number": number, "title": page.select_text("h1")})


crawl = Crawl("http://shop.test/news", handlers=router)
crawl.run()
print(sorted(item["number"] for item in crawl.items("stories")))  # [1, 2, 3]
