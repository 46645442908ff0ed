"""A crawler as simple as can be, which shares no code with the one under test, nor with the expectation.

One request at a time, html.parser for the links, protego for robots.txt, no waiting.
"""

from __future__ import annotations

import gzip
import http.client
import re
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import quote, urljoin, urlsplit

import brotli  # type: ignore[import-untyped]
from protego import Protego

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TRIES = 4
HOPS = 10
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.decompress,
    "br": brotli.decompress,
    "zstd": zstd.decompress,
    "deflate": lambda body: zlib.decompressobj(15 if body[0] & 15 == 8 else -15).decompress(body),
}


@dataclass
class Reply:
    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Links(HTMLParser):
    """The links of a page as (canonical URL, nofollow), and its title."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, bool]] = []
        self.title = ""
        self.nofollow = False
        self._base = url
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in ("textarea", "title"):
            self._inside = tag
        elif tag == "base":
            self._base = urljoin(self._base, values["href"])
        elif tag == "meta" and values.get("name") == "robots":
            self.nofollow = "nofollow" in values["content"].lower()
        elif tag == "a" and "href" in values and self._inside != "textarea":
            url = canonical(self._base, values["href"])
            if url:
                self.found.append((url, "nofollow" in values.get("rel", "").split()))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "title":
            self.title += data


def canonical(base: str, href: str) -> str:
    """The canonical absolute URL, empty for what is none or leads back to the page itself."""
    if href.strip().startswith("#"):
        return ""
    try:
        parts = urlsplit(urljoin(base, href.strip()))
    except ValueError:
        return ""
    if parts.scheme != "http":
        return ""
    query = re.sub(r"(^|&)utm_[^&]*", "", parts.query)
    path = quote(parts.path.replace("%7e", "~"), safe="/~%")
    return f"http://{parts.hostname}{path or '/'}" + (f"?{query}" if query else "")


class Naive:
    """Fetches everything that can be reached, from `place` (address, port) under all names."""

    def __init__(self, place: tuple[str, int], sitemaps: bool = False) -> None:
        self._connection = http.client.HTTPConnection(*place, timeout=60)
        self._sitemaps = sitemaps
        self._robots: dict[str, Protego] = {}
        self._queue: deque[tuple[str, int]] = deque()
        self._seen: set[str] = set()
        self.titles: dict[str, str] = {}

    def crawl(self, seeds: Iterable[str]) -> None:
        for seed in seeds:
            self._push(seed, 0)
        while self._queue:
            url, hops = self._queue.popleft()
            if self._allows(url):
                self._take(url, self._insist(url), hops)
        self._connection.close()

    def _push(self, url: str, hops: int) -> None:
        if url not in self._seen and hops <= HOPS:
            self._seen.add(url)
            self._queue.append((url, hops))

    def _take(self, url: str, reply: Reply, hops: int) -> None:
        if 300 <= reply.status < 400:
            self._push(canonical(url, reply.headers["location"]), hops + 1)
        elif reply.status == 200 and reply.headers["content-type"].startswith("text/html"):
            self._read_page(url, reply)
        elif reply.status == 200 and "sitemap" in url:
            body = gzip.decompress(reply.body) if url.endswith(".gz") else reply.body
            for listed in re.findall(r"<loc>(.*?)</loc>", body.decode()):
                self._push(listed.replace("&amp;", "&"), 0)

    def _read_page(self, url: str, reply: Reply) -> None:
        links = read_links(url, reply)
        self.titles[url] = links.title
        if links.nofollow or "nofollow" in reply.headers.get("x-robots-tag", ""):
            return
        for target, nofollow in links.found:
            if not nofollow:
                self._push(target, 0)

    def _allows(self, url: str) -> bool:
        host = urlsplit(url).netloc
        if host not in self._robots:
            self._robots[host] = Protego.parse(self._robots_text(host))
            for sitemap in self._robots[host].sitemaps if self._sitemaps else ():
                self._push(sitemap, 0)
        return self._robots[host].can_fetch(url, "naive")

    def _robots_text(self, host: str) -> str:
        url = f"http://{host}/robots.txt"
        for _ in range(6):
            reply = self._insist(url)
            if not 300 <= reply.status < 400:
                break
            url = reply.headers["location"]
        if reply.status >= 500:
            return "User-agent: *\nDisallow: /"
        return reply.body.decode("utf-8-sig", errors="replace") if reply.status == 200 else ""

    def _insist(self, url: str) -> Reply:
        reply = Reply(0)
        for _ in range(TRIES):
            reply = self._get(url)
            if reply.status not in (0, 429, 500, 503):
                break
        return reply

    def _get(self, url: str) -> Reply:
        host = urlsplit(url).netloc
        headers = {"Host": host, "Accept-Encoding": "gzip, deflate, br, zstd"}
        try:
            self._connection.request("GET", url.removeprefix(f"http://{host}"), headers=headers)
            response = self._connection.getresponse()
        except http.client.HTTPException:
            self._connection.close()
            return Reply(0)
        try:
            body = response.read()
        except http.client.IncompleteRead as error:
            body = error.partial
            self._connection.close()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, body)


def read_links(url: str, reply: Reply) -> Links:
    """Decode a page by what it says of itself, and parse it."""
    decode = DECODERS.get(reply.headers.get("content-encoding", ""), bytes)
    body = decode(reply.body)
    declared = re.search(r"charset=([\w-]+)", reply.headers.get("content-type", ""))
    meta = re.search(rb'<meta charset="([\w-]+)"', body[:1024])
    encoding = declared[1] if declared else meta[1].decode() if meta else "utf-8-sig"
    return Links(url, body.decode(encoding))
