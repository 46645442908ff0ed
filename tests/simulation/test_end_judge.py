"""What counts as a right answer to whether the crawl has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

import pytest

from frontier.scripts import Call
from tests.simulation.audit import EndJudge
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Breach


@dataclass
class Books:
    """As much of a ledger as the judge reads, with a clock."""

    now_ms: float = 0.0
    accepted: set[str] = field(default_factory=set)
    open: int = 0
    opened: int = 0

    def judge(self) -> EndJudge:
        return EndJudge(cast(Ledger, self), lambda: self.now_ms)


def become(books: Books, judge: EndJudge, at_ms: float, open_urls: int) -> None:
    """A call changes what is open. `judge` is told of it first."""
    books.now_ms = at_ms
    judge.observe("r1", Call(("CALL",)), None)
    books.accepted.add("https://d.test/")
    books.opened += max(0, open_urls - books.open)
    books.open = open_urls


def test_what_opens_after_a_moment_with_nothing_open_makes_the_answer_no_less_right() -> None:
    """For example a link that a replica with a lost lease puts into an outbox while the last reply is on its way."""
    books = Books()
    judge = books.judge()
    become(books, judge, at_ms=1.0, open_urls=1)
    books.now_ms = 2.0
    question = judge.ask()
    become(books, judge, at_ms=3.0, open_urls=0)
    become(books, judge, at_ms=5.0, open_urls=1)
    judge.check_answer(question, has_ended=True, replica="r2")
    judge.check_report("r2")


def test_an_answer_is_wrong_if_something_was_open_all_the_time() -> None:
    books = Books()
    judge = books.judge()
    become(books, judge, at_ms=1.0, open_urls=0)
    become(books, judge, at_ms=2.0, open_urls=1)
    books.now_ms = 3.0
    question = judge.ask()
    become(books, judge, at_ms=4.0, open_urls=2)
    with pytest.raises(Breach, match="said to be over with 2 URLs open"):
        judge.check_answer(question, has_ended=True, replica="r2")
    judge.check_answer(question, has_ended=False, replica="r2")


@pytest.mark.parametrize("has_lost", [False, True])
def test_a_crawl_is_not_over_before_its_seeds_or_after_the_server_has_lost_writes(has_lost: bool) -> None:
    books = Books()
    judge = books.judge()
    become(books, judge, at_ms=1.0, open_urls=1)
    if has_lost:
        become(books, judge, at_ms=2.0, open_urls=0)
        become(books, judge, at_ms=3.0, open_urls=1)
        judge.check_report("r2")
        judge.forget()
    with pytest.raises(Breach, match="said to be over with 1 URLs open"):
        judge.check_report("r2")


def test_it_is_wrong_to_go_on_when_nothing_was_open_and_nothing_came() -> None:
    books = Books()
    judge = books.judge()
    become(books, judge, at_ms=1.0, open_urls=1)
    become(books, judge, at_ms=2.0, open_urls=0)
    question = judge.ask()
    with pytest.raises(Breach, match="is over and is said to go on"):
        judge.check_answer(question, has_ended=False, replica="r2")
    become(books, judge, at_ms=3.0, open_urls=1)
    judge.check_answer(question, has_ended=False, replica="r2")
