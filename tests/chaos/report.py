"""The table at the end: the web's log held against what a perfect crawl does, and against the diary of faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.chaos.diary import Diary, Kind
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
