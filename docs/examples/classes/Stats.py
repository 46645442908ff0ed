from crawler import Crawl

stats = Crawl(["http://shop.test/news", "http://shop.test/none"]).run()
print(stats)  # 5 pages, 0 items, 1 failure, 6 requests in 2 s
print(stats.pages, stats.failures)  # 5 {'http_404': 1}
