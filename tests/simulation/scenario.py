"""The parameters of a run, drawn from its seed: sizes, settings, and the probabilities of faults.

The web to be crawled: a seeded graph of URLs, most of them sound, some broken for a while, forever, or denied.

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
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal

SLACK_S = 0.003
"""Redis counts whole milliseconds, so a delay may be one shorter at either end."""

STALE_S = 150.0
"""For how long a replica that is paused or cut off may use its last reading of the server's clock, at most."""

RARE = 0.1
"""The chance that a run has `BRIEF_S` for its interval, the chance that its pages are a chain, and the chance that it has
`MANY_RESTARTS`."""

MANY_RESTARTS = 20
"""So many restarts that some lose the repetition of what others have lost."""

BRIEF_S = 0.2
"""So short an interval that several epochs pass while an answer is awaited, or while the server stalls."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`faulty_s`: simulated seconds during which faults happen; afterwards everything works and the crawl must end.

    `exchange_fault`: the chance that an exchange with Redis goes wrong. `fault_every_s`: mean time between two faults of
    replicas. `slow`: the chance that one way of an exchange is slow. `lateness`: the chance that a timer rings late.
    `drift`: seconds that a replica's clock gains or loses in one, at most. `parallel`: requests to a domain without a delay
    in flight at once. `max_pages`: the limit of the crawl, 0 for none; `limited_at_s`: when it is set, to as many more
    pages than are settled by then, 0 for before the crawl. `scope`: by what links belong to the crawl.
    `restarts`: how often the server is restarted and has lost its last writes, up to a second's.
    `is_chain`: there is one seed, and each page links to the next one only, so that one URL is open at a time.
    `nodes`: of the Redis Cluster; 1 is a single server. `joined_s`: within how many seconds the replicas join; `deaths`:
    how many of them die at once then, without leaving. `audit_every`: events between two comparisons of Redis
    with the ledger.
    `pack_above`: URLs of a domain above which the others are packed. `workers`: requests in flight in a replica.
    `fetches`: extra requests that the handler of each page makes, to any pages of the crawl; `renders`: those that each
    page makes in a browser, with every second page empty without its scripts.
    `reshards`: how often an operator gives the crawl another number of shards, or completes or undoes what another began.
    """

    seed: int
    faulty_s: float
    replicas: int
    shards: int
    domains: int
    urls: int
    interval_s: float
    lease_ms: int
    delay_ms: int
    batch: int
    domain_cap: int
    exchange_fault: float
    fault_every_s: float
    slow: float
    lateness: float
    drift: float
    parallel: int
    max_pages: int
    scope: Literal["seeds", "domains"]
    is_chain: bool
    restarts: int
    limited_at_s: float
    nodes: int = 1
    joined_s: float = 2.0
    workers: int = 8
    deaths: int = 0
    audit_every: int = 500
    pack_above: int = 0
    reshards: int = 0
    fetches: int = 0
    renders: int = 0

    @property
    def slack_s(self) -> float:
        """By how much a replica may be wrong about the time of the server."""
        return SLACK_S + self.drift * STALE_S

    @classmethod
    def crowd(cls, replicas: int, seed: int = 7) -> Scenario:
        """Many replicas with a few domains each, that join within a minute. Then a tenth of them dies at once. While they
        join, and after the deaths, exchanges with Redis go wrong and replicas are paused, cut off and killed. Faults end 15
        seconds before the last join: what a lost call holds up is over by then, and views are those of the crowd alone."""
        usual = cls.draw(seed, faulty_s=45.0, replicas=replicas, interval_s=5.0, nodes=1, restarts=1)
        few = {"shards": 2 * replicas, "domains": 2 * replicas, "urls": 30 * replicas}
        faults = {"exchange_fault": 0.01, "slow": 0.0, "lateness": 0.0, "fault_every_s": 5.0, "max_pages": 0}
        ways = {
            "lease_ms": 10_000,
            "delay_ms": 1_500,
            "is_chain": False,
            "domain_cap": 0,
            "scope": "seeds",
            "drift": 1e-4,
        }
        crowd = {"joined_s": 60.0, "deaths": replicas // 10, "audit_every": 500 * replicas}
        return replace(usual, **few, **faults, **ways, **crowd)  # type: ignore[arg-type]

    @classmethod
    def draw(
        cls,
        seed: int,
        faulty_s: float | None = None,
        replicas: int | None = None,
        interval_s: float | None = None,
        is_chain: bool = False,
        nodes: int | None = None,
        restarts: int | None = None,
    ) -> Scenario:
        """The scenario of `seed`; `faulty_s`, `replicas`, `interval_s`, `nodes` and `restarts` replace what would have been
        drawn, and so does `is_chain` where it is true."""
        rng = random.Random(f"scenario {seed}")
        parallel, delay_ms = rng.choice(((1, 1), (1, 1), (1, 0), (3, 0), (3, 1)))
        crowd = rng.random() < 0.02
        drawn = 200 if crowd else int(3 * 8 ** rng.random())
        limit = random.Random(f"limit {seed}")  # of its own, so that seeds without a limit are as they were before
        usual = cls(
            seed=seed,
            faulty_s=faulty_s or rng.choice((20.0, 60.0, 120.0)),
            replicas=replicas or drawn,
            shards=rng.choice((8, 16, 32)),
            domains=rng.randint(5, 30),
            urls=rng.randint(*rng.choice(((4, 12), (30, 150), (30, 150)))),  # with few, each may be the last one
            interval_s=rng.choice((1.0, 5.0)),
            lease_ms=rng.choice((4_000, 10_000, 30_000)),
            delay_ms=delay_ms * rng.choice((200, 1_000, 2_000)),
            batch=rng.choice((1, 4, 32)),
            domain_cap=rng.choice((0, 0, 0, 8)),
            exchange_fault=rng.choice((0.0, 0.05, 0.1)),
            fault_every_s=rng.choice((0.5, 2.0, 10.0)),
            slow=rng.choice((0.0, 0.02, 0.2)),
            lateness=rng.choice((0.0, 0.02)),
            drift=rng.choice((0.0, 1e-4, 1e-3)),
            parallel=parallel,
            max_pages=limit.choice((0, limit.randint(1, 60))),
            scope=limit.choice(("seeds", "seeds", "domains")),
            is_chain=False,
            restarts=random.Random(f"restarts {seed}").choice((0, 0, 1, 3)),
            limited_at_s=random.Random(f"limited {seed}").choice((0.0, 5.0, 10.0)),
        )
        rare = random.Random(f"rare {seed}")  # of its own, for the same reason
        is_brief, draws_chain, urls = rare.random() < RARE, rare.random() < RARE, rare.randint(4, 20)
        if is_chain or draws_chain:
            # Its settings name the domains, because with "seeds" each domain of a chain would need a seed.
            usual = replace(usual, is_chain=True, scope="domains", urls=urls)
        if rare.random() < RARE:
            usual = replace(usual, restarts=MANY_RESTARTS)
        if restarts is not None:
            usual = replace(usual, restarts=restarts)
        if usual.restarts >= MANY_RESTARTS:
            usual = replace(usual, max_pages=0)  # which pages were settled is uncertain for most of the time
        drawn_nodes = random.Random(f"nodes {seed}").choice((1, 1, 3))
        if random.Random(f"pack {seed}").choice((False, False, True)):
            # What stays unpacked is at least two batches, and of few domains each has many URLs.
            usual = replace(usual, pack_above=2, batch=1, domains=5)
        return replace(
            usual,
            nodes=nodes or drawn_nodes,
            interval_s=interval_s or (BRIEF_S if is_brief else usual.interval_s),
        )


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
        return 200, HTML, f"<!doctype html><title>{self.url}</title><p>This is where it leads:<ul>{items}</ul>".encode()

    @property
    def is_shell(self) -> bool:
        """Whether a browser has to make its page, if there are any."""
        return not self.target and self.url[-1] in "02468"


HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)
SHELL = 200, HTML, b"<title>App</title><div id=root></div><script src=/app.js></script>"


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
