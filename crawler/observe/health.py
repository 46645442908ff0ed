"""The health record that each replica writes to Redis, and what a replica notes for it from the events of the crawl."""

from __future__ import annotations

import contextlib
import errno
import os
from collections import deque

import msgspec

from crawler.errors import FailureKind
from crawler.events import Event, GroupCommitted, OwnFailure, PageSettled, SinkBlocked
from crawler.page import Outcome
from frontier.keys import CrawlKeys
from frontier.peers import Health
from frontier.store import Store

HEALTH_INTERVALS = 3
"""A health record expires when its replica has not reported for this many intervals."""

MOST_FAILURES = MOST_PAGES = 10
LONGEST_URL = 200

MOST_SETS, MOST_ITEMS, LONGEST_ITEM = 20, 20, 2_000
"""The data sets of which a replica keeps the latest items, how many of each, and characters of an item."""


class Failure(msgspec.Struct, frozen=True):
    """A URL that is retried later or was given up. `at_ms`: server time in milliseconds since 1970."""

    at_ms: int
    url: str
    outcome: str
    reason: str


class Fetched(msgspec.Struct, frozen=True, gc=False):
    """A page that was done. `at_ms`: server time in milliseconds since 1970; `status`: 0 without a response."""

    at_ms: int
    url: str
    status: int


class LatestItem(msgspec.Struct, frozen=True, gc=False):
    """An item of a page. `at_ms`: server time since 1970; `fields`: as JSON, which may be cut."""

    at_ms: int
    url: str
    fields: str


class HealthRecord(msgspec.Struct, frozen=True):
    """The state of a replica. `pages` and `received_bytes` count since its start; `domains`: leased to it; `busy`:
    requests in flight; `urls`: leased URLs; `rss_mb`: peak resident memory; `cpu_s`: processor seconds of the process;
    `recent_failures`, `recent_pages`: newest first. `settings_revision`: the latest that it applies completely;
    `settings_waiting`: settings of a later one that wait for a restart; `settings_refused`: why that cannot be used, or
    "". `blocked`: what keeps it from crawling, or "". `nodes_away`: nodes of a cluster that it cannot use, while it can
    use others. `waits_for`: some of the domains with slow responses, those with the oldest requests first.
    `clock_off_s`: by how much its machine's clock is ahead of that of the crawl. `disk_free`: bytes that are free for
    its output, None if it is unknown."""

    replica: str
    address: str
    epoch: int
    index: int
    shards: int
    domains: int
    pages: int
    received_bytes: int
    pages_per_s: float
    rss_mb: float
    redis_away: bool
    busy: int = 0
    urls: int = 0
    recent_failures: list[Failure] = []
    recent_pages: list[Fetched] = []
    settings_revision: int = 0
    settings_waiting: tuple[str, ...] = ()
    settings_refused: str = ""
    blocked: str = ""
    nodes_away: list[str] = []
    cpu_s: float = 0.0
    waits_for: list[str] = []
    clock_off_s: float = 0.0
    disk_free: int | None = None


async def health_records(store: Store, keys: CrawlKeys) -> list[HealthRecord]:
    """Return the current health records, ordered by index, with replicas outside the view last. Raises RedisAway."""
    return (await read_health(store, keys))[0]


async def read_health(store: Store, keys: CrawlKeys) -> tuple[list[HealthRecord], dict[str, int]]:
    """Return the same, and the replicas that were lost lately, each with when it last reported, in server milliseconds."""
    records, lost = await Health(store, keys.peers, ttl_s=HEALTH_INTERVALS).read()
    decoded = list[HealthRecord]()
    for record in records.values():
        with contextlib.suppress(msgspec.MsgspecError):  # somebody else has written it
            decoded.append(msgspec.json.decode(record, type=HealthRecord))
    return sorted(decoded, key=lambda record: (record.index or 1 << 30, record.replica)), lost


_AWAITED = {FailureKind.OUR_DNS: "the DNS", FailureKind.MACHINE: "its machine", FailureKind.PROXY: "its proxy"}

_REMEDIES = {
    FailureKind.OUR_DNS: "check the name servers in /etc/resolv.conf",
    FailureKind.PROXY: "check that it runs and accepts the credentials",
}
_MACHINES_REMEDIES = {
    errno.EMFILE: "raise ulimit -n, or lower --concurrency",
    errno.ENFILE: "raise fs.file-max, or end other programs",
    errno.ENOMEM: "free memory, or lower --concurrency",
    errno.ENETUNREACH: "check its network and routes",
    errno.ENETDOWN: "check its network and routes",
    errno.EADDRNOTAVAIL: "end programs that use up the local ports, or lower --concurrency",
}


def _remedy(kind: FailureKind, error: str) -> str:
    """What to do about `error`, a failure of `kind` that is ours; "" if it says that itself."""
    machines = (remedy for code, remedy in _MACHINES_REMEDIES.items() if os.strerror(code) in error)
    return _REMEDIES[kind] if kind in _REMEDIES else next(machines, "")


class Troubles:
    """What a replica notes from the events in `EVENTS`: the latest URLs without a page, pages and items of each data set,
    newest first; a full disk, until a write succeeds; and a failure that is ours, until a result is written."""

    EVENTS = (PageSettled, SinkBlocked, OwnFailure, GroupCommitted)

    def __init__(self) -> None:
        self.failures: deque[Failure] = deque(maxlen=MOST_FAILURES)
        self.pages: deque[Fetched] = deque(maxlen=MOST_PAGES)  # that were done last, newest first
        self.items: dict[str, deque[LatestItem]] = {}
        self._sink = self._own = ""

    def observe(self, event: Event) -> None:
        match event:
            case PageSettled(page) if page.outcome is Outcome.DONE:
                status = page.exchange.status if page.exchange else 0
                self.pages.appendleft(Fetched(int(page.settled_at * 1000), _shortened(page.url), status))
                for item in page.items[:MOST_ITEMS]:
                    if item.name in self.items or len(self.items) < MOST_SETS:
                        fields = item.json[:LONGEST_ITEM].decode(errors="ignore")
                        found = LatestItem(int(page.settled_at * 1000), _shortened(page.url), fields)
                        self.items.setdefault(item.name, deque(maxlen=MOST_ITEMS)).appendleft(found)
            case PageSettled(page) if page.outcome in (Outcome.RETRY, Outcome.DEAD):
                failure = Failure(int(page.settled_at * 1000), _shortened(page.url), page.outcome, page.reason)
                self.failures.appendleft(failure)
            case SinkBlocked(error):
                self._sink = error
            case OwnFailure(kind, error):
                self._own = "; ".join(filter(None, [f"waits for {_AWAITED[kind]}: {error}", _remedy(kind, error)]))
            case GroupCommitted(results):
                self._sink = ""
                if results:  # and not only leases that were returned
                    self._own = ""
            case _:
                pass

    @property
    def of_output(self) -> str:
        """Why the replica cannot write its output, or ""."""
        return f"cannot write output: {self._sink}; make room, or mend the storage" if self._sink else ""

    def obstacle(self, waits_for_permits: bool) -> str:
        """Return what keeps the replica from crawling, or "". `waits_for_permits`: others hold the last permits of
        pages."""
        return (
            self.of_output
            or self._own
            or ("waits for page permits, which other replicas hold" if waits_for_permits else "")
        )


def _shortened(url: str) -> str:
    return url if len(url) <= LONGEST_URL else url[: LONGEST_URL - 1] + "…"
