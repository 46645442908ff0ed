from crawler import Context, Crawl, OutgoingRequest, Router

router = Router()


@router.before_request
def with_language(request: OutgoingRequest, crawl: Context) -> None:
    request.headers["Accept-Language"] = "de"
    request.cookies["currency"] = "EUR"


crawl = Crawl("http://shop.test/about", handlers=router)
crawl.run()
print(crawl.stats.done)  # {'ok': 1}
