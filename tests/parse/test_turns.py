"""The turns of domains in the process for large documents."""

from __future__ import annotations

from crawler.parse.turns import REMEMBERED, Turns


def order(turns: Turns[str]) -> list[str]:
    """The items that wait, in the order of their turns."""
    found = []
    while (item := turns.take()) is not None:
        found.append(item)
    return found


def test_without_use_turns_go_by_arrival() -> None:
    turns = Turns[str]()
    for domain in ("c", "a", "b"):
        turns.add(domain, domain)
    assert order(turns) == ["c", "a", "b"]
    assert turns.take() is None


def test_each_domain_has_one_turn_before_any_has_two() -> None:
    turns = Turns[str]()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        turns.add(item[0], item)
    assert order(turns) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_domain_that_used_much_waits_for_those_that_used_little_but_not_forever() -> None:
    turns = Turns[str]()
    turns.ended("heavy", 6.5)
    turns.add("heavy", "heavy")
    for number in range(4):
        turns.add(f"light{number}", f"light{number}")
    assert order(turns) == ["light0", "heavy", "light1", "light2", "light3"]


def test_a_light_document_waits_for_one_heavy_one_after_that_of_the_moment_at_most() -> None:
    """Whatever the number of heavy domains, once each has shown that it is one."""
    turns = Turns[str]()
    for number in range(100):
        turns.ended(f"heavy{number}", 6.5)
        turns.add(f"heavy{number}", f"heavy{number}")
    waits = []
    for turn in range(1_000):
        if turn % 5 == 0:
            turns.add("light", "light")
            came = turn
        taken = turns.take()
        assert taken is not None
        turns.ended(taken, 0.1 if taken == "light" else 6.5)
        if taken == "light":
            waits.append(turn - came)
        else:
            turns.add(taken, taken)
    assert len(waits) == 200
    assert max(waits) == 1
    assert {turns.take() for _ in range(100)} == {f"heavy{number}" for number in range(100)}


def test_use_is_forgotten() -> None:
    turns = Turns[str]()
    turns.ended("once", 5.0)
    for _ in range(10_000):
        turns.ended("other", 5.0)
    for item in ("used", "once"):
        turns.add(item, item)
    turns.ended("used", 0.1)
    assert order(turns) == ["once", "used"]
    for number in range(2 * REMEMBERED - 2):
        turns.ended(f"{number}", 0.1)
    assert repr(turns) == f"<Turns domains=0 remembered={REMEMBERED}>"


def test_what_no_longer_waits_has_no_turn() -> None:
    turns = Turns[str]()
    for item in ("a1", "a2", "b1"):
        turns.add(item[0], item)
    turns.remove("a", "a1")
    turns.remove("b", "b1")
    assert order(turns) == ["a2"]
