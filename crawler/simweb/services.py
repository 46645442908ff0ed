"""The resources of a host that are not pages: robots.txt and its redirect targets, and sitemaps."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace

from crawler.simweb import robots
from crawler.simweb.chance import draw
from crawler.simweb.features import Features
from crawler.simweb.links import absolute
from crawler.simweb.resource import Resource, Trouble
from crawler.simweb.robots import RobotsKind
from crawler.simweb.site import Site

_SITEMAP = re.compile(r"^/sitemap-(\d{1,6})\.xml(?:\.gz)?$")
_LISTED_EACH = 1000
SITEMAP_TYPES = ("application/xml", "application/gzip")
SHARED_RULES_HOST = "rules.test"


class Services:
    """The robots.txt and sitemaps of all hosts of a world."""

    def __init__(self, seed: int, features: Features) -> None:
        self._seed = seed
        self._features = features

    def resource(self, site: Site, host: str, target: str) -> Resource | None:
        """The resource at `target` on a host of `site`, if it is not a page. None if there is none."""
        if target == "/robots.txt":
            return self._robots(site, host)
        if target.startswith("/robots-hop/") and site.robots[host] is RobotsKind.FIVE_HOPS:
            return self._hop(site, host, target.removeprefix("/robots-hop/"))
        if site.has_sitemap and host == site.domain:
            return _sitemap(site, target)
        return None

    def rules_elsewhere(self, host: str, target: str) -> Resource | None:
        """The resource on a host to which MOVED and SHARED robots.txt redirect. None if there is none."""
        if (host == SHARED_RULES_HOST or host.startswith("rules-d")) and target.startswith("/for/"):
            return self._file(absolute(host, target), RobotsKind.FOLDER, "")
        return None

    def _robots(self, site: Site, host: str) -> Resource:
        kind = site.robots[host]
        url = absolute(host, "/robots.txt")
        if kind in (RobotsKind.ABSENT, RobotsKind.FORBIDDEN):
            return Resource(url=url, status=404 if kind is RobotsKind.ABSENT else 403, body=b"<h1>No</h1>")
        if kind is RobotsKind.FIVE_HOPS:
            return _moved(url, absolute(host, "/robots-hop/2"))
        if kind in (RobotsKind.MOVED, RobotsKind.SHARED):
            elsewhere = SHARED_RULES_HOST if kind is RobotsKind.SHARED else f"rules-{site.domain}"
            return _moved(url, absolute(elsewhere, f"/for/{host}"))
        sitemap = absolute(host, "/sitemap.xml") if site.has_sitemap and host == site.domain else ""
        return self._file(url, kind, sitemap)

    def _file(self, url: str, kind: RobotsKind, sitemap: str) -> Resource:
        body = robots.text(kind, self._features.crawl_delay_s, sitemap)
        file = Resource(url=url, body=body, media="text/plain")
        if kind is RobotsKind.SLOW:
            return replace(file, delay=self._features.slow_s)
        if kind is RobotsKind.FLAKY:
            busy = Trouble(
                status=503, succeeds_at=robots.FLAKY_FAILURES + 1, retry_after_s=self._features.retry_after_s
            )
            return replace(file, trouble=busy)
        if kind is RobotsKind.UNREACHABLE:
            status = 500 + 3 * (draw(self._seed, url) % 2)
            retry_after_s = self._features.retry_after_s if status == 503 else 0
            return replace(file, trouble=Trouble(status=status, succeeds_at=0, retry_after_s=retry_after_s))
        return file

    def _hop(self, site: Site, host: str, step: str) -> Resource | None:
        url = absolute(host, f"/robots-hop/{step}")
        if step == str(robots.HOPS + 1):
            return self._file(url, RobotsKind.FOLDER, "")
        if step in "2345" and len(step) == 1:
            return _moved(url, absolute(host, f"/robots-hop/{int(step) + 1}"))
        return None


def _moved(url: str, goal: str) -> Resource:
    return Resource(url=url, status=301, location=goal, redirect=goal, body=b"")


def _sitemap(site: Site, target: str) -> Resource | None:
    """/sitemap.xml, which is an index (sitemaps.org protocol), and its sitemaps. Every other one is compressed."""
    count = -(-site.size // _LISTED_EACH)
    if target == "/sitemap.xml":
        return _listing(site, target, "sitemapindex", "sitemap", [_part_url(site, n) for n in range(count)])
    match = _SITEMAP.match(target)
    if match is None or int(match[1]) >= count or absolute(site.domain, target) != _part_url(site, int(match[1])):
        return None
    first = int(match[1]) * _LISTED_EACH
    slots = (site.slot(number) for number in range(first, min(first + _LISTED_EACH, site.size)))
    return _listing(site, target, "urlset", "url", [slot.url for slot in slots if slot.host == site.domain])


def _part_url(site: Site, part: int) -> str:
    return absolute(site.domain, f"/sitemap-{part}.xml" + (".gz" if part % 2 == 0 else ""))


def _listing(site: Site, target: str, outer: str, inner: str, urls: list[str]) -> Resource:
    items = "".join(f"<{inner}><loc>{url.replace('&', '&amp;')}</loc></{inner}>\n" for url in urls)
    text = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<{outer} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{items}</{outer}>\n'
    )
    zipped = target.endswith(".gz")
    return Resource(
        url=absolute(site.domain, target),
        body=gzip.compress(text.encode(), 1, mtime=0) if zipped else text.encode(),
        media="application/gzip" if zipped else "application/xml",
        listed=tuple(urls),
    )
