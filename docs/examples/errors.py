from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler()
@router.on_failure()
async def status(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", {"url": page.url, "status": page.status})


urls = [f"http://shop.test/{path}" for path in ("product/1", "none", "broken", "dropped")]
Crawl(urls, handlers=router, settings={"politeness": {"tries": 2}}).run()
