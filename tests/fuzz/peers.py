"""What requests, httpx and Scrapy read of the odd responses. Runs in an environment that has them, without this project.

    python peers.py PROXY < CASES > READ

A case is a JSON line with `url`, `words`, `needs_text` and `is_sitemap`. The answer is one JSON object with the URLs whose
pages each peer read, and those that each found in a sitemap: {"pages": {PEER: [URL]}, "sitemaps": {PEER: {URL: [URL]}}}.
Sitemaps are read by Scrapy, by lxml's parser for HTML and by a regular expression.
"""

import html
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx
import lxml.html
import requests
from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.http import TextResponse
from scrapy.utils.gz import gunzip
from scrapy.utils.sitemap import Sitemap

TIMEOUT_S = 5
WORKERS = 8


def shows(case, body, text):
    """Whether a page has all words of the case."""
    if case["needs_text"]:
        return all(words in text for words in case["words"])
    return all(words.encode() in body for words in case["words"])


def by_requests(proxy, case):
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": proxy}
        response = session.get(case["url"], timeout=TIMEOUT_S)
        return response.ok and shows(case, response.content, response.text)


def by_httpx(proxy, case):
    with httpx.Client(proxy=proxy, trust_env=False, follow_redirects=True, timeout=TIMEOUT_S) as client:
        response = client.get(case["url"])
        return response.is_success and shows(case, response.content, response.text)


def all_by(reader, proxy, cases):
    def one(case):
        try:
            return reader(proxy, case)
        except Exception:  # whatever a peer raises: it has not read the page
            return False

    with ThreadPoolExecutor(WORKERS) as pool:
        return [case["url"] for case, did in zip(cases, pool.map(one, cases), strict=True) if did]


def found_in(body):
    """The URLs that each reader of sitemaps finds in `body`."""

    def by_scrapy():
        data = gunzip(body) if body[:3] == b"\x1f\x8b\x08" else body
        return [entry["loc"] for entry in Sitemap(data) if "loc" in entry]

    def by_lxml():
        return [(element.text or "").strip() for element in lxml.html.document_fromstring(body).iter("loc", "{*}loc")]

    def by_pattern():
        text = body.decode("utf-8", "replace")
        return [html.unescape(match).strip() for match in re.findall(r"<(?:\w+:)?loc[^>]*>([^<]*)<", text, re.I)]

    found = {}
    for name, reader in (("Scrapy", by_scrapy), ("lxml", by_lxml), ("pattern", by_pattern)):
        try:
            found[name] = reader()
        except Exception:
            found[name] = []
    return found


class Pages(Spider):
    name = "pages"
    custom_settings = {  # noqa: RUF012
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "RETRY_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_TIMEOUT": TIMEOUT_S,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS": 32,
    }

    async def start(self):
        for number, case in enumerate(self.cases):
            # Each case keeps its cookies to itself.
            meta = {"proxy": self.proxy, "cookiejar": number, "case": case}
            yield Request(case["url"], meta=meta, errback=lambda failure: None, dont_filter=True)

    def parse(self, response):
        text = response.text if isinstance(response, TextResponse) else ""
        if shows(response.meta["case"], response.body, text):
            self.read.append(response.meta["case"]["url"])


def main(proxy):
    cases = [json.loads(line) for line in sys.stdin]
    pages = [case for case in cases if not case["is_sitemap"]]
    read = {"Scrapy": []}
    read["requests"] = all_by(by_requests, proxy, pages)
    read["httpx"] = all_by(by_httpx, proxy, pages)
    sitemaps = {"Scrapy": {}, "lxml": {}, "pattern": {}}
    for case in cases:
        if case["is_sitemap"]:
            body = requests.get(case["url"] + "sitemap.xml", proxies={"http": proxy}, timeout=TIMEOUT_S).content
            for name, urls in found_in(body).items():
                sitemaps[name][case["url"]] = urls
    process = CrawlerProcess()
    process.crawl(Pages, cases=pages, proxy=proxy, read=read["Scrapy"])
    process.start()
    json.dump({"pages": read, "sitemaps": sitemaps}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
