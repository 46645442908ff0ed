from crawler import Crawl, Handle, ParsedPage, Router

router = Router()


@router.handler("/page/")
async def quotes(page: ParsedPage, crawl: Handle) -> None:
    await crawl.drop()
    await crawl.enqueue(page.select("li.next a"))
    for quote in page.select("div.quote"):
        author = await crawl.fetch(quote.select("a.about")[0])
        await crawl.push(
            "items",
            {
                "text": page.select_text("span.text", quote),
                "author": author.select_text("h3"),
                "born": author.select_text(".born"),
            },
        )


Crawl("http://quotes.test/page/1/", handlers=router).run()
