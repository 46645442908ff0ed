from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/news/")
async def story(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", {"url": page.url, "title": page.select_text("h1")})


Crawl("http://shop.test/news", handlers=router, again=True).run()
