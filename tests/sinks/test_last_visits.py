"""The known pages of a crawl, from its lines in any order."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from crawler.errors import UserError
from crawler.scope.next_visit import Visits
from crawler.sinks.lines import LastVisits, VisitLine, iso_time
from frontier.entries import tag_of
from frontier.known_pages import KnownPage

NOON = 1_790_000_000.0
STATES = [str(Visits(NOON + 60 * number, NOON, 3_600)) for number in range(6)]


def line(path: str, number: int, is_known: bool = True, first: bool | None = None, **more: object) -> VisitLine:
    """The line of visit `number` of a page, which is visited again if it `is_known`."""
    at, is_first = NOON + 60 * number, number == 0 if first is None else first
    return VisitLine(
        f"https://a.test/{path}",
        "a.test",
        2,
        settled_at=iso_time(at + 0.5),
        previous_visit=None if is_first else iso_time(at - 60),
        next_visit=datetime.fromtimestamp(at + 3_600, UTC) if is_known else None,
        visit_state=STATES[number] if is_known else None,
        **more,  # type: ignore[arg-type]
    )


@contextmanager
def pages(folder: Path, lines: Iterable[VisitLine]) -> Iterator[list[KnownPage]]:
    with closing(LastVisits([folder])) as visits:
        visits.add(lines)
        yield list(visits.pages())


ENDS: list[tuple[str, list[VisitLine], int | None]] = [
    ("visited", [line("p", 0), line("p", 1), line("p", 2)], 2),
    ("once", [line("p", 0)], 0),
    ("never", [line("p", 0, is_known=False)], None),
    ("forgotten", [line("p", 0), line("p", 1, is_known=False)], None),
    ("found-anew", [line("p", 0), line("p", 1, is_known=False), line("p", 2, first=True)], 2),
    ("queued-twice", [line("p", 0), line("p", 1), line("p", 2, first=True)], 1),
    ("queued-twice-and-failed", [line("p", 0), line("p", 1), line("p", 2, is_known=False, first=True)], 1),
    ("queued-twice-and-visited", [line("p", 0), line("p", 1, first=True), line("p", 2)], 2),
]
"""The lines of a page in their order, and the number of the visit that Redis has stored."""


@pytest.mark.parametrize(("lines", "last"), [end[1:] for end in ENDS], ids=[end[0] for end in ENDS])
def test_the_visit_that_was_stored_last_counts(tmp_path: Path, lines: list[VisitLine], last: int | None) -> None:
    others = [line("a", 3), line("p/x", 3), line("p2", 3)]  # sorted before and after it
    expected = [] if last is None else [(STATES[last], int(NOON) + 60 * last + 3_600)]
    for seed in range(5):
        mixed = [*lines, *others]
        random.Random(seed).shuffle(mixed)
        with pages(tmp_path, mixed) as found:
            of_page = [page for page in found if page.entry.url == "https://a.test/p"]
            assert [(page.entry.visit, page.due_s) for page in of_page] == expected
            assert len(found) == len(of_page) + 3


def test_a_page_comes_with_all_that_redis_stores_of_it(tmp_path: Path) -> None:
    with pages(tmp_path, [line("p", 1, via="https://b.test/", label="p", payload={"a b": [1]})]) as (page,):
        entry = page.entry
    assert (entry.domain, entry.depth, entry.via, entry.tag) == (
        "a.test",
        2,
        "https://b.test/",
        tag_of("p", {"a b": [1]}),
    )
    assert entry.priority == -((int(NOON) + 60 + 3_600) // 60)


def test_more_lines_than_fit_in_memory(tmp_path: Path) -> None:
    numbers = list(range(33_000))
    random.Random(1).shuffle(numbers)
    with pages(tmp_path, (line(f"{number:06}", visit) for visit in (1, 0) for number in numbers)) as found:
        assert [page.entry.url for page in found] == [f"https://a.test/{number:06}" for number in sorted(numbers)]
        assert {page.entry.visit for page in found} == {STATES[1]}


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path) -> None:
    broken = line("p", 1)
    broken.visit_state = "f"
    with (
        pytest.raises(UserError, match=r"https://a\.test/p: its last line has a visit_state"),
        pages(tmp_path, [broken]),
    ):
        pass
