from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler()
async def title(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("items", {"url": page.url, "title": page.title})


Crawl(
    ["http://site0.test/", "http://site1.test/"],
    handlers=router,
    settings={"scope": {"kind": "any", "max_depth": 1}},
).run()
