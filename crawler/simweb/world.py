"""The synthetic web: any number of domains and pages, computed from a seed on demand.

Only the size of each domain is stored. The response of a URL is a pure function of the seed and the URL, so any number of
processes can have the same world. The number of pages includes only the numbered pages (`site.py`), not side URLs
(`numbered.py`), robots.txt and sitemaps (`services.py`) and hostile domains (`hostile.py`).
"""

from __future__ import annotations

from dataclasses import replace

from crawler.simweb import robots
from crawler.simweb.features import Features
from crawler.simweb.hostile import Hostile
from crawler.simweb.links import absolute, split
from crawler.simweb.numbered import Numbered
from crawler.simweb.resource import Resource
from crawler.simweb.robots import RobotsKind
from crawler.simweb.services import SITEMAP_TYPES, Services
from crawler.simweb.site import domain_name, domain_of
from crawler.simweb.sites import Sites


class World:
    """`pages` numbered pages spread over `domains` domains. Raises ValueError if there are fewer pages than domains."""

    def __init__(self, seed: int, domains: int, pages: int, features: Features | None = None) -> None:
        self.seed = seed
        self.pages = pages
        self.features = features or Features.plain()
        self.sites = Sites(seed, domains, pages, self.features)
        self._services = Services(seed, self.features)
        self._numbered = Numbered(seed, self.features, self.sites)
        self._hostile = Hostile(self.features.hazards)

    def __repr__(self) -> str:
        return f"<World seed={self.seed} domains={len(self.sites)} pages={self.pages}>"

    def seeds(self) -> list[str]:
        """The root of every domain, hostile ones last."""
        names = [domain_name(number) for number in range(len(self.sites))] + self._hostile.domains()
        return [absolute(name, "/") for name in names]

    def attacks(self) -> list[str]:
        """The URLs of the attacks by the hostile domains. Pages within a trap are not listed."""
        return self._hostile.attacks()

    def resource(self, url: str) -> Resource | None:
        """The resource at the canonical `url`, or None, which is sent as a 404."""
        return self.at(*split(url))

    def at(self, host: str, target: str) -> Resource | None:
        """The resource at `target` (path and query) on `host` (lower case, without port), or None."""
        site = self.sites.find(host)
        if site is None:
            return self._hostile.resource(host, target) or self._services.rules_elsewhere(host, target)
        service = self._services.resource(site, host, target)
        if service is not None and service.media in SITEMAP_TYPES and self.features.dated:
            dates = tuple(filter(None, map(self._numbered.changing, service.listed)))
            return replace(service, dates=dates if len(dates) == len(service.listed) else ())
        return service or self._numbered.resource(site, host, target)

    def is_denied(self, url: str) -> bool:
        """Whether the robots.txt of the URL's host denies it."""
        host, target = split(url)
        site = self.sites.find(host)
        if site is None:
            return self._hostile.is_hostile(host) and robots.denies(RobotsKind.FOLDER, target)
        return robots.denies(site.robots[host], target)

    def is_trap(self, host: str) -> bool:
        """Whether the host has an unlimited number of pages, which no expectation can list."""
        return self._hostile.is_trap(host)

    def names_sitemap(self, host: str) -> bool:
        """Whether the robots.txt of the host names its /sitemap.xml."""
        site = self.sites.find(host)
        if site is None:
            return self._hostile.names_sitemap(host)
        return site.has_sitemap and host == site.domain

    def crawl_delay(self, domain: str) -> float:
        """The Crawl-delay of the domain's robots.txt in seconds, 0 if there is none."""
        site = self.sites.find(domain)
        return site.crawl_delay if site else 0.0


def address_slot(host: str, addresses: int) -> int:
    """The index of the address, out of `addresses`, that serves the host. It depends on the last digit of the domain, so
    that ten patterns map all hosts."""
    digit = domain_of(host).partition(".")[0][-1:]
    return int(digit) % addresses if digit.isdecimal() else 0
