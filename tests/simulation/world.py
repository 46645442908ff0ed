"""The web to be crawled: a seeded graph of URLs, most of them sound, some broken for a while, for ever, or denied."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.simulation.scenario import Scenario

USER_AGENT = "simulated"


@dataclass(frozen=True, slots=True)
class Resource:
    """One URL. `asides`: links that count only if their domain is known by then. `fails`: how many requests for it are
    answered by `status` before the first 200."""

    url: str
    domain: str
    links: tuple[str, ...]
    asides: tuple[str, ...]
    fails: int = 0
    status: int = 500


class World:
    """`resources` by URL; `seeds` to begin with; `robots` by domain: (answers of 503 at first, body or None for 404)."""

    def __init__(self, scenario: Scenario) -> None:
        rng = random.Random(f"world {scenario.seed}")
        domains = [f"d{number}.test" for number in range(scenario.domains)]
        places = [(domain := rng.choice(domains), f"https://{domain}{_path(rng, n)}") for n in range(scenario.urls)]
        urls = [url for _, url in places]
        self.resources: dict[str, Resource] = {}
        aside = random.Random(f"asides {scenario.seed}")
        for number, (domain, url) in enumerate(places):
            # The next URL is always linked to, so that the graph hangs together.
            links = (*urls[number + 1 : number + 2], *rng.choices(urls, k=rng.randint(0, 6)))
            fails, status = rng.choice(((0, 0),) * 12 + ((1, 500), (1, 503), (99, 500)))
            asides = tuple(aside.choices([*urls, f"https://outside.test/{number}"], k=aside.choice((0, 0, 1, 3))))
            self.resources[url] = Resource(url, domain, links, asides, fails, status)
        self.seeds = [urls[0], *rng.choices(urls, k=3)]
        slow = rng.choice((2, 3)) * (scenario.delay_ms or 500) / 1000
        rules = f"User-agent: *\nCrawl-delay: {slow}\nDisallow: /private/\n".encode()
        plain = b"User-agent: *\nDisallow: /private/\n"
        self.robots = {domain: (rng.choice((0, 0, 0, 1)), rng.choice((None, plain, rules))) for domain in domains}


def _path(rng: random.Random, number: int) -> str:
    return f"/private/{number}" if rng.random() < 0.05 else f"/{number}"
