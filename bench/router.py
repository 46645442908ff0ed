"""A handler as users write it, for `bench.sizes`: one item a page."""

from __future__ import annotations

from crawler import Handle, ParsedPage, Router

router = Router()


@router.handler(content_type="text/html")
async def article(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("pages", {"url": page.url, "title": page.select_text("title"), "first": page.select_text("p")})
