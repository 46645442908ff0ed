"""The web to be crawled: a seeded graph of URLs, most of them sound, some broken for a while, for ever, or denied.

Which links count is for the program's own scope to say. The world is made so that the referee can tell beforehand, too:

| domain | `seeds` | `domains` |
|---|---|---|
| known | has a seed | is named |
| found | comes in when a seed that redirects there has been fetched | is named |
| strange | never comes in | is not named |

A link to a known domain counts, and so does one within a domain, which the crawl has to be in already. With `seeds` a link
from one domain into another that is found may count or not: that depends on when it is pushed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import islice

from tests.simulation.scenario import Scenario

STANDINGS = ("known",) * 7 + ("found",) * 2 + ("strange",)
"""From which that of a domain is drawn."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One URL. `links` count; `asides` may count, or never do. `fails`: how many requests for it are answered by `status`
    before the first that is not; `target`: where that one redirects to, its only link."""

    url: str
    domain: str
    links: tuple[str, ...] = ()
    asides: tuple[str, ...] = ()
    fails: int = 0
    status: int = 500
    target: str = ""

    @property
    def answer(self) -> tuple[int, tuple[tuple[bytes, bytes], ...], bytes]:
        """Status, headers and body."""
        if self.target:
            return 301, ((b"Location", self.target.encode()),), b""
        items = "".join(f'<li><a href="{url}">there</a>' for url in (*self.asides, *self.links))
        return 200, HTML, f"<!doctype html><title>{self.url}</title><ul>{items}</ul>".encode()


HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)


class World:
    """`resources` by URL; `seeds` to begin with; `robots` by domain: (answers of 503 at first, body or None for 404).
    `standings`: of each domain."""

    def __init__(self, scenario: Scenario) -> None:
        rng = random.Random(f"world {scenario.seed}")
        domains = [f"d{number}.test" for number in range(scenario.domains)]
        places = [(domain := rng.choice(domains), f"https://{domain}{_path(rng, n)}") for n in range(scenario.urls)]
        self._scope = scenario.scope
        self._is_chain = scenario.is_chain
        standing = random.Random(f"standings {scenario.seed}")
        self.standings = {domain: standing.choice(STANDINGS) for domain in domains} | {places[0][0]: "known"}
        self.resources: dict[str, Resource] = {}
        self._make_pages(places, rng)
        self.seeds = self._make_seeds(places, rng)
        slow = rng.choice((2, 3)) * (scenario.delay_ms or 500) / 1000
        rules = f"User-agent: *\nCrawl-delay: {slow}\nDisallow: /private/\n".encode()
        plain = b"User-agent: *\nDisallow: /private/\n"
        self.robots = {domain: (rng.choice((0, 0, 0, 1)), rng.choice((None, plain, rules))) for domain in domains}

    @property
    def named(self) -> tuple[str, ...]:
        """The domains of the crawl, where its settings name them."""
        return tuple(domain for domain in self.standings if self.may_hold(domain)) if self._scope == "domains" else ()

    def may_hold(self, domain: str) -> bool:
        """Whether a URL of `domain` may ever be accepted."""
        return self.standings.get(domain, "strange") != "strange"

    def _counts(self, source: str, domain: str) -> bool:
        """Whether a link from a page of the domain `source` to one of `domain` must be followed."""
        if self._scope == "domains":
            return self.may_hold(domain)
        return domain == source or self.standings.get(domain) == "known"

    def _make_pages(self, places: list[tuple[str, str]], rng: random.Random) -> None:
        urls = [url for _, url in places]
        home = {url: domain for domain, url in places}
        surely = {url for domain, url in places if self.standings[domain] == "known"}
        for number, (domain, url) in enumerate(places):
            # The next URL that counts is always linked to, so that the graph hangs together.
            following = list(islice((each for each in islice(urls, number + 1, None) if each in surely), 1))
            found = (*following, *rng.choices(urls, k=rng.randint(0, 6)))
            if self._is_chain:
                found = tuple(following)
            if rng.random() < 0.3:
                found = (f"https://outside.test/{number}", *found)
            fails, status = rng.choice(((0, 0),) * 12 + ((1, 500), (1, 503), (99, 500)))
            links = tuple(each for each in found if self._counts(domain, home.get(each, "outside.test")))
            asides = tuple(each for each in found if each not in links)
            self.resources[url] = Resource(url, domain, links, asides, fails, status)

    def _make_seeds(self, places: list[tuple[str, str]], rng: random.Random) -> list[str]:
        """The first page of a chain. Otherwise a seed for each domain that has a page and is known, and one that redirects
        there for each that is found."""
        if self._is_chain:
            return [places[0][1]]
        seeds: list[str] = []
        firsts: dict[str, str] = {}
        for domain, url in places:
            firsts.setdefault(domain, url)
        known = [domain for domain in firsts if self.standings[domain] == "known"]
        for domain, url in firsts.items():
            if domain in known:
                seeds.append(url)
            elif self.may_hold(domain):
                origin = rng.choice(known)
                moved = f"https://{origin}/moved/{domain}"
                fails = rng.choice((0, 0, 0, 1))
                self.resources[moved] = Resource(moved, origin, (url,), (), fails, 503, target=url)
                seeds.append(moved)
        return seeds


def _path(rng: random.Random, number: int) -> str:
    return f"/private/{number}" if rng.random() < 0.05 else f"/{number}"
