"""The hostile domains. Each has one kind of attack, and a page that a correct crawler still fetches.

The root of `h0001-gzip-bomb.test` links to /hazard, where the attack is, and to /after. Its robots.txt
denies /private/. Traps and the circle of redirects have an unlimited number of URLs after /hazard. The attacks by
robots.txt and sitemap serve a normal page at /hazard.
"""

from __future__ import annotations

import re

from crawler.simweb import robots
from crawler.simweb.chance import draw
from crawler.simweb.hazards import TRAPS, Hazard
from crawler.simweb.links import PlacedLink, absolute
from crawler.simweb.resource import Markup, Resource
from crawler.simweb.robots import RobotsKind

_BY_FILE = {
    Hazard.ROBOTS_BOMB: "/robots.txt",
    Hazard.ROBOTS_ENDLESS: "/robots.txt",
    Hazard.ROBOTS_PATTERNS: "/robots.txt",
    Hazard.SITEMAP_BOMB: "/sitemap.xml",
}
_MONTH = re.compile(r"^/calendar/(\d{4,6})/(\d\d)$")
_STEP = re.compile(r"^/hop/(\d{1,6})$")


class Hostile:
    """The domains for these hazards."""

    def __init__(self, hazards: tuple[Hazard, ...]) -> None:
        names = (hazard_domain(number, hazard) for number, hazard in enumerate(hazards, 1))
        self._by_domain = dict(zip(names, hazards, strict=True))
        circles = [name for name, hazard in self._by_domain.items() if hazard is Hazard.CIRCLE]
        self._by_host = self._by_domain | {_partner(name): Hazard.CIRCLE for name in circles}

    def domains(self) -> list[str]:
        """Their names. Only these must be seeds."""
        return list(self._by_domain)

    def attacks(self) -> list[str]:
        """The URLs of the attacks."""
        places = self._by_domain.items()
        return [absolute(domain, _BY_FILE.get(hazard, "/hazard")) for domain, hazard in places]

    def is_hostile(self, host: str) -> bool:
        """Whether this is the host of a hostile domain."""
        return host in self._by_host

    def is_trap(self, host: str) -> bool:
        """Whether the host has an unlimited number of pages."""
        return self._by_host.get(host) in TRAPS

    def names_sitemap(self, host: str) -> bool:
        """Whether the host's robots.txt names /sitemap.xml."""
        return self._by_host.get(host) is Hazard.SITEMAP_BOMB

    def resource(self, host: str, target: str) -> Resource | None:
        """The resource of a hostile host. None if there is none, or if the host is not hostile."""
        hazard = self._by_host.get(host)
        if hazard is None:
            return None
        url = absolute(host, target)
        if target == "/":
            return _page(host, target, "/hazard", "/after")
        if target == "/robots.txt":
            return self._robots(url, host, hazard)
        if target == _BY_FILE.get(hazard, "/hazard") and hazard not in _MANY_PAGES:
            return Resource(url=url, hazard=hazard)
        if target in ("/after", "/hazard") and hazard not in _MANY_PAGES:
            return _page(host, target)
        return _page(host, target) if target == "/after" else _behind(hazard, host, target)

    def _robots(self, url: str, host: str, hazard: Hazard) -> Resource:
        sitemap = absolute(host, "/sitemap.xml") if self.names_sitemap(host) else ""
        rules = robots.text(RobotsKind.FOLDER, 0, sitemap)
        by_robots = hazard if _BY_FILE.get(hazard) == "/robots.txt" else None
        return Resource(url=url, body=rules, media="text/plain", hazard=by_robots)


_MANY_PAGES = TRAPS | {Hazard.CIRCLE}


def hazard_domain(number: int, hazard: Hazard) -> str:
    """h0001-gzip-bomb.test"""
    return f"h{number:04}-{hazard}.test"


def _partner(domain: str) -> str:
    """The other domain of a redirect circle."""
    here, there = ("-circle.", "-elcric.") if "-circle." in domain else ("-elcric.", "-circle.")
    return domain.replace(here, there)


def _behind(hazard: Hazard, host: str, target: str) -> Resource | None:
    """/hazard and the pages after it, on the domains with an unlimited number of pages."""
    if hazard is Hazard.CIRCLE:
        return _circle(host, target)
    if hazard is Hazard.CALENDAR:
        return _month(host, target)
    if hazard is Hazard.SESSIONS and target.partition("?")[0] == "/hazard":
        ids = (draw(0, target, n) for n in range(3))
        return _trap(host, target, *(f"/hazard?visit={number:016x}" for number in ids))
    if hazard is Hazard.DEEPER and target.startswith("/hazard"):
        return _trap(host, target, f"{target}/folder", f"{target}/other")
    return None


def _circle(host: str, target: str) -> Resource | None:
    match = _STEP.match(target)
    if match is None and target != "/hazard":
        return None
    goal = absolute(_partner(host), f"/hop/{int(match[1]) + 1 if match else 1}")
    return Resource(url=absolute(host, target), status=302, location=goal, redirect=goal, body=b"")


def _month(host: str, target: str) -> Resource | None:
    if target == "/hazard":
        return _trap(host, target, "/calendar/2024/01")
    match = _MONTH.match(target)
    if match is None or not 1 <= int(match[2]) <= 12:
        return None
    months = int(match[1]) * 12 + int(match[2])
    return _trap(host, target, f"/calendar/{months // 12:04}/{months % 12 + 1:02}")


def _page(host: str, target: str, *goals: str) -> Resource:
    links = tuple(PlacedLink(absolute(host, goal), goal) for goal in goals)
    return Resource(url=absolute(host, target), markup=Markup(title=f"{target} of {host}"), links=links)


def _trap(host: str, target: str, *goals: str) -> Resource:
    """A page whose links are unknown to the expectation, because their number is unlimited."""
    anchors = "".join(f'<a href="{goal}">on</a>\n' for goal in goals)
    return Resource(url=absolute(host, target), body=f"<title>On and on</title>\n{anchors}".encode())
