"""The table at the end: the web's log held against what a perfect crawl does, and against the diary of faults.

Judges a run on a Redis Cluster: the web's log, the archive, and how long each fault was felt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tests.chaos.diary import OUTAGES, Diary, Kind, NodeDiary, NodeFault, NodeKind
from tests.killing import Findings
from tests.simweb.judge import Expected, JudgeLimits, judge
from tests.simweb.server import Record

ALLOWED_S = 0.010
"""What two requests to a domain may be closer than its delay."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of a run; URLs, unless it says otherwise."""

    expected: int
    requests: int
    lost: tuple[str, ...]
    doubled: int
    unexplained: tuple[str, ...]
    denied: tuple[str, ...]
    unexpected: tuple[str, ...]
    overlaps: tuple[str, ...]
    too_close: tuple[str, ...]
    closest_s: float
    delay_s: float
    faults: Counter[Kind]
    started: int  # replicas
    crashed: tuple[str, ...]  # replicas
    open_at_end_of_faults: int
    level_after_s: float
    seconds: float

    @property
    def is_perfect(self) -> bool:
        broken = (
            self.lost,
            self.unexplained,
            self.denied,
            self.unexpected,
            self.overlaps,
            self.too_close,
            self.crashed,
        )
        return not any(broken)

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of each line of the table."""
        return [
            ("URLs expected", f"{self.expected:,}"),
            ("requests in all", f"{self.requests:,}"),
            ("lost", str(len(self.lost))),
            ("fetched more than once", str(self.doubled)),
            ("... not in flight at a fault", str(len(self.unexplained))),
            ("denied, fetched all the same", str(len(self.denied))),
            ("not to be fetched for other reasons", str(len(self.unexpected))),
            ("two requests to a domain at once", str(len(self.overlaps))),
            ("closer than the delay less 10 ms", str(len(self.too_close))),
            ("closest two requests to a domain", f"{self.closest_s:.3f} s of {self.delay_s:.3f} s"),
            *((kind.value, str(count)) for kind in Kind if (count := self.faults[kind])),
            ("replicas started", str(self.started)),
            ("replicas that ended by themselves", str(len(self.crashed))),
            ("URLs still open when the faults ended", f"{self.open_at_end_of_faults:,}"),
            *([("load level after the last change", f"{self.level_after_s:.1f} s")] if self.level_after_s else []),
            ("the whole run", f"{self.seconds:.0f} s"),
        ]

    def __str__(self) -> str:
        return table(self.rows())

    def details(self) -> str:
        """The first of each sort of breach."""
        found = {
            "lost": self.lost,
            "unexplained": self.unexplained,
            "denied": self.denied,
            "unexpected": self.unexpected,
            "overlaps": self.overlaps,
            "too close": self.too_close,
            "crashed": self.crashed,
        }
        return "\n".join(f"{name}: {item}" for name, items in found.items() for item in items[:5])


def table(rows: Sequence[tuple[str, str]]) -> str:
    """`rows` as a table in Markdown."""
    wide = max(len(name) for name, _ in rows)
    lines = [f"| {name:<{wide}} | {value:>18} |" for name, value in rows]
    return "\n".join([f"| {'':<{wide}} | {'':>18} |", f"|{'-' * (wide + 2)}|{'-' * 19}:|", *lines])


@dataclass(frozen=True, slots=True)
class Observed:
    """What only the run itself could see."""

    started: int
    crashed: tuple[str, ...]
    open_at_end_of_faults: int
    level_after_s: float
    seconds: float


def report(records: Sequence[Record], expected: Expected, diary: Diary, delay_s: float, observed: Observed) -> Report:
    """Judge the log of a web on which every URL answers at the first request."""
    limits = JudgeLimits(delay=delay_s, tolerance=ALLOWED_S)
    result = judge(records, expected, limits)
    in_order = sorted(records, key=lambda record: record.start)
    last = {record.url: record for record in in_order}
    repeats = [r for r in in_order if r is not last[r.url] and r.url in expected.visits]
    return Report(
        expected=len(expected.visits),
        requests=result.requests,
        lost=tuple(result.missing),
        doubled=len({record.url for record in repeats}),
        unexplained=tuple(f"{r.url} {r.agent} at {r.start:.3f}" for r in repeats if not diary.explains(r)),
        denied=tuple(result.denied),
        unexpected=(*result.unexpected, *result.unasked),
        overlaps=tuple(str(pair) for pair in result.overlaps if not diary.excuses_closeness(pair.second)),
        too_close=tuple(str(pair) for pair in result.too_close if not diary.excuses_closeness(pair.second)),
        closest_s=min(result.closest.values(), default=0.0),
        delay_s=delay_s,
        faults=diary.count(),
        started=observed.started,
        crashed=observed.crashed,
        open_at_end_of_faults=observed.open_at_end_of_faults,
        level_after_s=observed.level_after_s,
        seconds=observed.seconds,
    )


LONGEST_STOP_S = 2.0
"""Requests to the domains of nodes that are well never stop for longer than this, in seconds."""

LONGEST_RETURN_S = 2.0
"""From the moment when a node's slots answer again to the first request for one of their domains, in seconds. For the first
of them, shards grant no leases (`frontier/lua/lost_writes.lua`)."""


@dataclass(frozen=True, slots=True)
class Felt:
    """How `fault` was felt. `return_s`: from the answer of its slots to the first request for their domains, None if they
    had no more work. `stops`: by other node, the longest time without a request for its domains."""

    fault: NodeFault
    return_s: float | None
    stops: dict[str, float]

    def __str__(self) -> str:
        fault = self.fault
        back = "no more work" if self.return_s is None else f"requests {self.return_s:.2f} s after that"
        longest = max(self.stops.values(), default=0.0)
        return (
            f"{fault.begin:.3f} {fault.kind.value} {fault.node}: served after "
            f"{fault.served_at - fault.begin:.2f} s, {back}; others stopped for {longest:.2f} s at most"
        )


def feel(records: Sequence[Record], diary: NodeDiary) -> list[Felt]:
    """How each outage was felt, by the web's log."""
    in_order = sorted(records, key=lambda record: record.start)
    felt = []
    for fault in (fault for fault in diary.nodes if fault.kind in OUTAGES):
        hit = [record for record in in_order if record.domain in fault.hit]
        stops = {
            node: _longest_stop([record for record in in_order if record.domain in domains], fault, diary)
            for node, domains in fault.domains.items()
            if node != fault.node
        }
        felt.append(Felt(fault, _return_s(hit, fault, diary), stops))
    return felt


def _return_s(records: Sequence[Record], fault: NodeFault, diary: NodeDiary) -> float | None:
    """The time from the answer of its slots to the first of `records`, less the time for which the replica that made it
    stood still, as in `_longest_stop`. None if there was none."""
    back = next((record for record in records if record.start >= fault.served_at), None)
    if back is None:
        return None
    return back.start - fault.served_at - diary.stood_still_s(back, fault.served_at, back.start)


def _longest_stop(records: Sequence[Record], fault: NodeFault, diary: NodeDiary) -> float:
    """The longest time without a request that touches the time of `fault`, less the time for which the replica that made
    the next request stood still. If all domains were leased to replicas that were killed, it begins when such a lease has
    ended. There was no more work after the last request, and some before the first one."""
    earlier, longest_s = fault.begin, 0.0
    last = {record.domain: record for record in records}
    before: dict[str, Record] = {}
    for record in records:
        if record.start > fault.begin and earlier < fault.end:
            ends = [diary.lease_end(one, record.start) for one in before.values() if one is not last[one.domain]]
            begin = max(earlier, min(ends, default=0.0))
            stood_still_s = diary.stood_still_s(record, begin, record.start)
            longest_s = max(longest_s, record.start - begin - stood_still_s)
        earlier = record.start
        before[record.domain] = record
    return longest_s


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """What came of a run on a cluster. `links_missing`: found on archived pages and allowed, but not in the archive."""

    crawl: Report
    archive: Findings
    links_missing: tuple[str, ...]
    felt: tuple[Felt, ...]
    diary: NodeDiary
    mode: str
    longest_stop_s: float = LONGEST_STOP_S
    longest_return_s: float = LONGEST_RETURN_S

    @property
    def stopped(self) -> list[Felt]:
        """Faults during which requests to domains of other nodes stopped for too long."""
        return [felt for felt in self.felt if max(felt.stops.values(), default=0.0) > self.longest_stop_s]

    @property
    def late(self) -> list[Felt]:
        """Faults after which requests began too late."""
        return [felt for felt in self.felt if felt.return_s is not None and felt.return_s > self.longest_return_s]

    @property
    def is_perfect(self) -> bool:
        return self.crawl.is_perfect and self.archive.ok and not (self.links_missing or self.stopped or self.late)

    def __str__(self) -> str:
        returns = [felt.return_s for felt in self.felt if felt.return_s is not None]
        stops = [gap for felt in self.felt for gap in felt.stops.values()]
        served = [felt.fault.served_at - felt.fault.begin for felt in self.felt if felt.fault.kind in _FAILING_OVER]
        counts = self.diary.count_nodes()
        still = [one.end - one.begin for one in self.diary.standstills]
        return table(
            [
                ("mode", self.mode),
                *self.crawl.rows(),
                ("settled, not in the archive", str(len(self.archive.missing))),
                ("rows without their record", str(len(self.archive.without_record))),
                ("URLs with two rows in the archive", str(len(self.archive.doubled))),
                ("URLs with two records", str(len(self.archive.recorded_twice))),
                ("links of archived pages, not in the archive", str(len(self.links_missing))),
                *((kind.value, str(counts[kind])) for kind in NodeKind),
                ("slots answered again after kill or SIGSTOP", _span(served)),
                ("from then to the first request", _span(returns)),
                ("longest stop of domains on other nodes", _span(stops)),
                ("longest standstill by the machine's load", f"{max(still, default=0.0):.2f} s"),
            ]
        )

    def details(self) -> str:
        """All faults of nodes, and the first of each sort of breach."""
        found: dict[str, Sequence[object]] = {
            "not in the archive": self.archive.missing,
            "without record": self.archive.without_record,
            "two rows": self.archive.doubled,
            "two records": self.archive.recorded_twice,
            "link missing": self.links_missing,
            "others stopped": self.stopped,
            "late": self.late,
        }
        lines = [f"{name}: {item}" for name, items in found.items() for item in items[:5]]
        return "\n".join([*map(str, self.felt), *filter(None, [self.crawl.details()]), *lines])


_FAILING_OVER = frozenset({NodeKind.KILL, NodeKind.STOP})


def _span(seconds: Sequence[float]) -> str:
    """Median and maximum."""
    return f"{median(seconds):.2f} s, max {max(seconds):.2f} s" if seconds else "none"
