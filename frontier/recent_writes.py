"""The last writes of a replica, to be sent again if the server that took them is replaced by one that may lack them.

A server that syncs its log once a second loses up to two seconds in a power failure, and one that takes over from another
lacks what was not yet replicated. Nobody but the writers knows what that was. So each keeps what it pushed and settled in
the last seconds. Both can be repeated: what the server still has does not change.

It also keeps what it leased, and pushes it again, too. On a cluster, the server may have lost a URL together with its lease
while another one kept the settlement of the page with the link, and the replica that pushed it may be dead.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set

import msgspec
from msgspec.structs import replace

from frontier.entries import Entry
from frontier.settle import Lease, LeasedUrl, Settlement

KEPT_MS = 10_000
"""How long writes are kept. `everysec` loses up to two seconds, replication normally less."""

SYNCED_MS = 2_000
"""After that, a server with `everysec` has normally synced a write."""

KEPT_ENTRIES = 100_000
"""The most pushed URLs that are kept, at about 300 bytes each. If there are more, they are kept for a shorter time."""


class Write(msgspec.Struct, frozen=True, eq=False):
    """One write to `shard` at `at_ms` (server time): pushed or leased URLs, or a settlement. `is_kept`: the URLs were put
    into the outbox of the shard."""

    at_ms: int
    shard: int
    entries: Sequence[Entry] = ()
    is_kept: bool = False
    settlement: Settlement | None = None


class RecentWrites:
    """The writes of the last `KEPT_MS`, and older ones to a server that is away or was replaced since.

    `run_of`: shard -> the run ID of the server process that serves it; `runs`: what changes if one of these does;
    `is_away`: shard -> whether its server is away."""

    def __init__(
        self,
        run_of: Callable[[int], str],
        runs: Callable[[], Hashable],
        is_away: Callable[[int], bool],
        now_ms: Callable[[], int],
    ) -> None:
        self._run_of = run_of
        self._all_runs = runs
        self._is_away = is_away
        self._now_ms = now_ms
        self._writes: deque[Write] = deque()
        self._entries = 0
        self._swept_ms = 0
        self._leases: Counter[tuple[int, int]] = Counter()  # shard and token -> settlements among the writes
        self._settled: dict[int, LeasedUrl] = {}  # shard -> the last URL of the settlements that are not kept any more
        self._runs: dict[int, str] = {}  # shard -> the run that has all writes to it
        self._replaced: dict[int, str] = {}
        self._compared: Hashable = None  # the runs of which `_replaced` holds; None: it may be outdated

    def __repr__(self) -> str:
        return f"<RecentWrites {len(self._writes)} urls={self._entries}>"

    def safe_url(self, shard: int) -> LeasedUrl | None:
        """The URL of `shard` that was settled last before the last writes: a server where it is not has lost more."""
        return self._settled.get(shard)

    def one_of_each(self, node_of: Callable[[int], str], if_lately: bool = False) -> Collection[int]:
        """A written shard of each node. `node_of`: shard -> node; `if_lately`: none if the servers keep all writes."""
        if if_lately and not (self._writes and self._writes[-1].at_ms >= self._now_ms() - KEPT_MS):
            return ()
        return {node_of(shard): shard for shard in self._runs}.values()

    def reached(self, *shards: int) -> None:
        """Record that calls to `shards` are sent: another connection may notice a new run before the replies."""
        for shard in shards:
            if run := self._run_of(shard):
                self._runs.setdefault(shard, run)

    def pushed(self, shard: int, entries: Sequence[Entry]) -> None:
        self._add(Write(self._now_ms(), shard, entries))

    def leased(self, shard: int, leases: Sequence[Lease]) -> None:
        """Record `leases` of `shard`, whose URLs were pushed by anyone."""
        self._add(Write(self._now_ms(), shard, [entry for lease in leases for entry in lease.entries]))

    def kept(self, shard: int, links: Sequence[Entry]) -> None:
        """Record that `links` were put into the outbox of `shard`."""
        self._add(Write(self._now_ms(), shard, links, is_kept=True))

    def settled(self, settlement: Settlement) -> None:
        self._add(Write(self._now_ms(), settlement.lease.shard, settlement=settlement))

    def _add(self, write: Write) -> None:
        self._runs.setdefault(write.shard, self._run_of(write.shard))
        self._writes.append(write)
        self._count(write, 1)
        while self._is_safe(self._writes[0], write.at_ms) or self._entries > KEPT_ENTRIES + len(write.entries):
            safe = self._writes.popleft()
            self._count(safe, -1)
            self._drop(safe)
        if write.at_ms >= self._swept_ms + KEPT_MS:  # there may be safe ones behind one that is not
            self._swept_ms = write.at_ms
            kept = []
            for one in self._writes:
                if self._is_safe(one, write.at_ms):
                    self._drop(one)
                else:
                    kept.append(one)
            self._replace(kept)

    def _drop(self, write: Write) -> None:
        if write.settlement is not None:
            self._settled[write.shard] = write.settlement.leased[-1]

    def _count(self, write: Write, by: int) -> None:
        self._entries += by * len(write.entries)
        if write.settlement is not None:
            lease = write.settlement.lease
            self._leases[lease.shard, lease.token] += by
            if not self._leases[lease.shard, lease.token]:
                del self._leases[lease.shard, lease.token]

    def _replace(self, writes: Sequence[Write]) -> None:
        self._writes = deque(writes)
        self._entries = sum(len(write.entries) for write in writes)
        # Replaced as a whole, because another thread may be reading it.
        self._leases = Counter((one.lease.shard, one.lease.token) for write in writes if (one := write.settlement))

    def may_repeat(self, url: LeasedUrl) -> bool:
        """Whether a settlement under the lease of `url` is kept, and may have no effect. In any thread."""
        return (url.shard, url.token) in self._leases

    @property
    def are_safe(self) -> bool:
        """Whether the servers had `SYNCED_MS` to sync the last write, and none is away or was replaced."""
        is_old = not self._writes or self._writes[-1].at_ms < self._now_ms() - SYNCED_MS
        return is_old and not self.is_in_doubt

    @property
    def is_in_doubt(self) -> bool:
        """Whether the servers may lack some of the writes, and nobody can tell now."""
        return bool(self.replaced_runs()) or any(self._is_away(write.shard) for write in self._writes)

    def _is_safe(self, write: Write, now_ms: int) -> bool:
        """Whether the server that took `write` runs since then, long enough to keep it."""
        shard = write.shard
        is_old = write.at_ms < now_ms - KEPT_MS
        return is_old and not self._is_away(shard) and self._run_of(shard) == self._runs[shard]

    def is_replaced(self, shard: int) -> bool:
        """Whether `shard` is served by another run than the one with the writes."""
        return shard in self._runs and self._run_of(shard) != self._runs[shard]

    def replaced_runs(self) -> dict[int, str]:
        """The shards that are served by another run than the one with the writes, and that run."""
        runs = self._all_runs()
        if self._compared != runs:  # asked several times for each group of pages, with thousands of shards
            now = {shard: self._run_of(shard) for shard in self._runs}
            self._replaced = {shard: run for shard, run in now.items() if run != self._runs[shard]}
            self._compared = runs
        return self._replaced.copy()

    def of(self, shards: Collection[int]) -> list[Write]:
        """The writes to `shards`, oldest first."""
        return [write for write in self._writes if write.shard in shards]

    def forget(self, writes: Collection[Write]) -> None:
        """Drop `writes`, which were sent again. Each is recorded again by its sender."""
        gone = set(map(id, writes))
        self._replace([write for write in self._writes if id(write) not in gone])

    def withdraw(self, urls: Set[LeasedUrl]) -> None:
        """Drop the settlements of `urls`, which had no effect. Their pages are removed, so they must never have one."""
        if not urls:
            return
        left: list[Write] = []
        for write in self._writes:
            if (one := write.settlement) is not None and not urls.isdisjoint(one.leased):
                settled = [url for url, leased in zip(one.urls, one.leased, strict=True) if leased not in urls]
                write = replace(write, settlement=replace(one, urls=settled))
            if write.entries or (write.settlement is not None and write.settlement.urls):
                left.append(write)
        self._replace(left)

    def repeated(self, runs: Mapping[int, str]) -> None:
        """Record that all writes to the shards in `runs` were sent again to these runs."""
        self._runs.update(runs)
        self._compared = None
