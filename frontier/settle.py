"""Leases, how their URLs ended, and how scripts receive this."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from frontier.entries import QUEUED_VISIT, Entry, parse_entry
from frontier.known_pages import rest_of_record
from frontier.packing import First
from frontier.scripts import Reply

SETTLE_LEASES, SETTLE_URLS = 64, 192
"""Leases and URLs per settle call. It takes about 0.5 ms with 64 URLs, and 6 ms with 192 that are visited again."""

LOW = 3
"""Words about a domain that `lease.lua` reports because it has few unpacked URLs. A lease has four."""


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The exclusive right to fetch from `domain` until `expires_ms` (server time), and the URLs to fetch."""

    domain: str
    shard: int
    token: int
    expires_ms: int
    delay_ms: int
    state: str  # the crawler's own text, kept with the domain
    entries: tuple[Entry, ...]


class LeasedUrl(NamedTuple):
    """A URL and the lease under which it was fetched. `Frontier.revoke` finds out whether it was settled under it."""

    shard: int
    domain: str
    token: int
    entry: Entry


class SettledUrl(msgspec.Struct, frozen=True, gc=False):
    """How one leased URL ended. `outcome`: done, denied, dead or retry (see `retry`); `reason`: one word for the
    crawl's counters. `follow_up`: of a retry, when and how it is queued; `KEEP` keeps a denied URL with the dead letters;
    of a page that is visited again, what `with_next_visit` says."""

    entry: Entry
    outcome: str
    reason: str
    follow_up: str | bytes = ""


KEEP = "keep"


def retry(entry: Entry, reason: str, ready_ms: int, priority: float) -> SettledUrl:
    """Try `entry` again from `ready_ms` on. Counts a try."""
    return SettledUrl(entry, "retry", reason, f"{ready_ms}\n{priority!r}\n{entry.next_try(priority).raw}")


def postpone(entry: Entry, reason: str, ready_ms: int) -> SettledUrl:
    """Lease `entry` again from `ready_ms` on. It was not requested, so no try is counted."""
    return SettledUrl(entry, "retry", reason, f"{ready_ms}\n{entry.priority!r}\n{entry.raw}")


def with_next_visit(settled: SettledUrl, found: str, due_ms: int | None, visit: str) -> SettledUrl:
    """`settled`, visited again at `due_ms` unless None. `found`: a word for the counters; `visit`: the state in hex
    digits."""
    entry = settled.entry
    priority = entry.priority - QUEUED_VISIT if entry.priority > QUEUED_VISIT / 2 else entry.priority
    due = "" if due_ms is None else -(-due_ms // 1000)
    rest = rest_of_record(msgspec.structs.replace(entry, priority=priority, visit=visit))
    return SettledUrl(entry, settled.outcome, settled.reason, f"visit\n{found}\n{due}\n".encode() + rest)


class Counted(msgspec.Struct):
    """What the URLs of a settlement add to the crawl's counters. `requests`: how many were requested; `duplicates`: how
    many had content that was already archived; `cut`: truncated pages by reason; `items`: by data set; `rejected`:
    items that were not written, by words without spaces; `repaired`: malformed pages that could be read, by part;
    `shapes`: pages of shapes of URLs that are put off, by the same; `drop`: links that were not followed, by reason;
    `extras`: requests that the handling of pages has made, by kind; `rendered`: pages that were in a browser, by
    why."""

    requests: int = 0
    received_bytes: int = 0
    duplicates: int = 0
    cut: dict[str, int] = {}
    items: dict[str, int] = {}
    rejected: dict[str, int] = {}
    repaired: dict[str, int] = {}
    shapes: dict[str, int] = {}
    drop: dict[str, int] = {}
    extras: dict[str, int] = {}
    rendered: dict[str, int] = {}

    def words(self) -> str:
        """The argument of `settle.lua` with all but bytes and duplicates."""
        names = ("cut", "items", "rejected", "repaired", "shapes", "drop", "extras", "rendered")
        words = [f"{name}:{word} {number}" for name in names for word, number in getattr(self, name).items()]
        return " ".join([*words, f"requests {self.requests}"] if self.requests else words)


class Settlement(msgspec.Struct):
    """What a holder reports about one lease in one call. Without `urls` it only renews the lease. `next_ms`: when the next
    request to the domain may start, by `ServerClock.now_ms`."""

    lease: Lease
    next_ms: int
    delay_ms: int | None = None
    state: str | None = None
    urls: list[SettledUrl] = msgspec.field(default_factory=list)
    counted: Counted = msgspec.field(default_factory=Counted)

    @property
    def leased(self) -> list[LeasedUrl]:
        """The URLs of `urls` under their lease."""
        lease = self.lease
        return [LeasedUrl(lease.shard, lease.domain, lease.token, url.entry) for url in self.urls]

    def words(self, uncertainty_ms: int) -> list[str | bytes | int]:
        """The arguments of `settle.lua` for this lease. `uncertainty_ms`: by how much the server's clock may be ahead."""
        ends = _ends(self.urls)
        return [
            self.lease.domain,
            self.lease.token,
            self.next_ms + uncertainty_ms,
            "" if self.delay_ms is None else self.delay_ms,
            "" if self.state is None else self.state,
            self.counted.received_bytes,
            self.counted.duplicates,
            self.counted.words(),
            len(ends),
            *ends,
        ]


def parts_of(settlements: Sequence[Settlement], places: Iterable[int]) -> Iterator[list[int]]:
    """Split `places` in `settlements` into those of one settle call each."""
    part: list[int] = []
    urls = 0
    for place in places:
        urls += len(settlements[place].urls)
        if part and (urls > SETTLE_URLS or len(part) == SETTLE_LEASES):
            yield part
            part, urls = [], len(settlements[place].urls)
        part.append(place)
    if part:
        yield part


class SettleReply(msgspec.Struct, frozen=True):
    """`stale`: nothing was changed. `expires_ms`: None if the lease has ended. `due_ms`: when URLs are left after it."""

    stale: bool = False
    expires_ms: int | None = None
    due_ms: int | None = None


def _ends(urls: Sequence[SettledUrl]) -> list[str | bytes | int]:
    words: list[str | bytes | int] = []
    groups: dict[tuple[str, str], list[str]] = {}
    for settled in urls:
        if settled.entry.is_requisite and settled.outcome != "retry":
            settled = _of_requisite(settled)
        if settled.outcome in ("dead", "retry") or settled.follow_up:
            words += (settled.outcome, settled.reason, settled.follow_up, 1, settled.entry.raw)
        else:
            groups.setdefault((settled.outcome, settled.reason), []).append(settled.entry.raw)
    for (outcome, reason), entries in groups.items():
        words += (outcome, reason, "", len(entries), *entries)
    return words


def _of_requisite(settled: SettledUrl) -> SettledUrl:
    """`settled`, counted with the requisites and not with the pages."""
    keep = KEEP if settled.outcome == "dead" else settled.follow_up
    return SettledUrl(settled.entry, "requisite", settled.reason, keep)


def settle_reply(word: bytes, ms: int = -1) -> SettleReply:
    """What `settle.lua` or `release.lua` answers about one lease."""
    if word == b"stale":
        return SettleReply(stale=True)
    if word == b"held":
        return SettleReply(expires_ms=ms)
    return SettleReply(due_ms=None if ms < 0 else ms)


class LeaseReply(msgspec.Struct, frozen=True):
    """The reply to a lease call for one shard. `next_ms`: when to call again, None if nothing is queued, leased or
    waiting. `low`: the next blocks of domains with few unpacked URLs. `visit_ms`: of a shard with nothing else, when the
    first planned visit is due, None if there is none."""

    shard: int
    leases: tuple[Lease, ...]
    next_ms: int | None
    low: tuple[First, ...] = ()
    visit_ms: int | None = None


def lease_reply(shard: int, reply: Reply, expires_ms: int) -> LeaseReply:
    """What the reply of `lease.lua` for `shard` says. `expires_ms`: when the leases end."""
    leases, low, visit_ms = [], [], None
    for domain_raw, *about in reply[2:]:
        if not about:
            visit_ms = int(domain_raw)
            continue
        if len(about) == LOW:
            packed, name, contents = about
            low.append(First(shard, domain_raw.decode(), int(packed), name.decode(), contents))
            continue
        token, delay_ms, state, entries = about
        domain = domain_raw.decode()
        parsed = tuple(
            parse_entry(raw.decode(), domain, float(priority))
            for raw, priority in zip(entries[::2], entries[1::2], strict=True)
        )
        leases.append(Lease(domain, shard, int(token), expires_ms, int(delay_ms), state.decode(), parsed))
    next_ms = int(reply[1])
    return LeaseReply(shard, tuple(leases), None if next_ms < 0 else next_ms, tuple(low), visit_ms)
