"""The web of a simulation in which pages are visited again: pages that change at known rates, and the referee of visits.

Their rates are skewed: three pages in five change within minutes or at each request, and most others in days. Where visits
go matters most on such a web.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from frontier.domains import domain_of
from frontier.entries import parse_entry
from frontier.scripts import Call, Reply
from tests.simulation.arguments import bytes_of, each_end
from tests.simulation.history import Breach
from tests.simulation.network import EPOCH_MS
from tests.simulation.sites import TEXT, Answer, Sites
from tests.simulation.world import HTML
from tests.simweb.features import Change, Changing, Validity

KINDS = (
    *(Change.ALWAYS,) * 30,
    *(Change.NEVER,) * 2,
    *(Change.PERIODIC,) * 10,
    *(Change.POISSON,) * 58,
)
FAST = 0.5
"""Of the pages that change at random, this share does so every few minutes."""

VALIDITIES = (*(Validity.ETAG,) * 40, *(Validity.DATE,) * 25, *(Validity.NONE,) * 20)
DISHONEST = (*(Validity.RESTLESS,) * 8, *(Validity.STUCK,) * 2, *(Validity.WORDY,) * 5)

SLOW_EVERY = 20
"""Of so many domains, one has a Crawl-delay that does not allow all visits."""


class RecrawlWeb:
    """`pages` pages over `domains` domains, larger and smaller ones. `day_s`: for how many seconds a day stands; `all`: by
    URL; `slow`: the domains with a Crawl-delay."""

    def __init__(self, seed: int, domains: int, pages: int, day_s: float) -> None:
        rng = random.Random(f"revisit web {seed}")
        names = [f"d{number}.test" for number in range(domains)]
        weights = [1 / math.sqrt(rank) for rank in range(1, domains + 1)]
        homes = names + rng.choices(names, weights, k=pages - domains)
        self.all: dict[str, Changing] = {}
        for number, name in enumerate(homes):
            change = rng.choice(KINDS)
            fast = change is Change.POISSON and rng.random() < FAST
            days = math.exp(rng.uniform(math.log(1 / 1440), math.log(1 / 48)) if fast else rng.gauss(0.0, 0.7))
            url = f"https://{name}/{number}"
            self.all[url] = Changing(seed, url, change, days * day_s, rng.choice(VALIDITIES + DISHONEST))
        self.slow = frozenset(names[SLOW_EVERY // 2 :: SLOW_EVERY])
        self.crawl_delay_s = day_s / 60

    @property
    def judged(self) -> list[Changing]:
        """The pages whose freshness is judged: nobody can know that a page has changed whose server denies it."""
        return [page for page in self.all.values() if page.validity is not Validity.STUCK]

    def answer(self, url: str, now: float, fields: Mapping[str, str]) -> Answer:
        """What `url` answers to a request at `now` with these header fields."""
        domain = domain_of(url.split("/")[2])
        if url.endswith("/robots.txt"):
            rules = f"User-agent: *\nCrawl-delay: {self.crawl_delay_s}\n".encode()
            return (200, TEXT, rules) if domain in self.slow else (404, (), b"")
        page = self.all[url]
        body = f"<title>{url}</title><p>{page.text(now)}</p>".encode()
        headers = (*HTML, *((name.encode(), value.encode()) for name, value in page.fields(now).items()))
        if page.is_not_modified(now, fields):
            return 304, headers, b"a body that should not be here" if page.validity is Validity.WORDY else b""
        return 200, headers, body


BUSY_S = 2.0
"""Beyond its delay, this long after a request a domain still counts as busy: for the response, and for the next turn."""


class IdleTime:
    """How long a domain has been idle: neither answering nor waiting for its delay."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._idle_s: list[float] = []  # until each of these times

    def note(self, now: float, delay_s: float) -> None:
        """A request was sent `now`; the delay before it was `delay_s`."""
        gap_s = now - self._times[-1] - delay_s - BUSY_S if self._times else 0.0
        self._idle_s.append((self._idle_s[-1] if self._idle_s else 0.0) + max(0.0, gap_s))
        self._times.append(now)

    def since(self, at: float) -> float:
        """Seconds that it was idle from `at` until what was noted last, at most."""
        before = bisect_right(self._times, at) - 1
        return min(self._idle_s[-1] - self._idle_s[before], self._times[-1] - at) if before >= 0 else 0.0


class RecrawlSites(Sites):
    """The sites of a `RecrawlWeb`, and the referee of when its pages are visited, by the true time.

    `visits`: the times of the visits of each URL that were settled; `latest_s`: how long a domain was idle while one of
    its visits was due, at most. A domain whose delay does not allow all visits makes those that gain most.
    `limits`: the shortest and the longest time between two visits.
    """

    web: RecrawlWeb
    limits: tuple[float, float]

    def watch(self, web: RecrawlWeb, limits: tuple[float, float]) -> None:
        """Serve `web`, and hold its visits against `limits`."""
        self.web, self.limits = web, limits
        self.visits: defaultdict[str, list[float]] = defaultdict(list)
        self.asked: dict[str, float] = {}  # when each URL was requested last
        self.due: dict[str, float] = {}  # when each settled page is to be visited again
        self.delays: dict[str, int] = {}  # ms, as settled
        self._idle: defaultdict[str, IdleTime] = defaultdict(IdleTime)
        self.latest_s = 0.0

    def _answer(self, url: str, domain: str, fields: Mapping[str, str]) -> Answer:
        now = self.now_s()
        if not url.endswith("/robots.txt"):
            late_s = now - self.due.get(url, now)
            if late_s < -self._slack_s - 1:  # Redis counts whole seconds here
                raise Breach("early", f"{url} is requested {-late_s:.3f} s before it is due", domain)
            self._idle[domain].note(now, self.delays.get(domain, 0) / 1000)
            if late_s > self.latest_s:
                self.latest_s = max(self.latest_s, self.idle_s(domain, now - late_s))
            self.asked[url] = now
        return self.web.answer(url, now, fields)

    def idle_s(self, domain: str, since: float) -> float:
        """Seconds that `domain` was idle since then, until its last request or the end."""
        return self._idle[domain].since(since)

    def end(self) -> None:
        """The run ends now: a domain that was left is idle until then."""
        for domain, idle in self._idle.items():
            idle.note(self.now_s(), self.delays.get(domain, 0) / 1000)

    def observe(self, replica: str, call: Call, reply: Reply) -> None:
        """Note the visits that a call settles."""
        if call.script is None or call.script.name != "settle":
            return
        words, at = [bytes_of(word).decode("latin-1") for word in call.arguments], 4  # states are not text
        for said in reply[1::2]:
            end = at + 9 + int(words[at + 8])
            if said != b"stale":
                if words[at + 3]:
                    self.delays[words[at]] = int(words[at + 3])
                for _, again, raw in each_end(words[at + 9 : end]):
                    self._settled(parse_entry(raw, words[at], 0.0).url, again)
            at = end

    def _settled(self, url: str, again: str) -> None:
        kind, *more = again.split("\n", 3)
        if kind != "visit" or not more[1]:
            raise Breach("I1", f"{url} is settled, and not visited again: {again!r}", url)
        asked_at, due_at = self.asked[url], float(more[1])  # in whole seconds
        wait_s, (least_s, most_s) = due_at - asked_at, self.limits
        if not least_s - 1 <= wait_s <= most_s + 1:
            raise Breach("limits", f"{url} is due {wait_s:.3f} s after its last visit", url)
        if not self.visits[url] or self.visits[url][-1] < asked_at:  # a call may be repeated
            self.visits[url].append(asked_at)
        self.due[url] = due_at


def true_s(simulated_s: float) -> float:
    """Seconds since 1970 by the clock of the sites."""
    return EPOCH_MS / 1000 + simulated_s
