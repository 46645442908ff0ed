"""The turns of domains in the process for large documents."""

from __future__ import annotations

from crawler.parse.child import REMEMBERED, FairQueue


def order(queue: FairQueue) -> list[str]:
    """The items that wait, in the order of their turns."""
    found = []
    while (item := queue.take()) is not None:
        found.append(item)
    return found


def test_without_use_turns_go_by_arrival() -> None:
    queue = FairQueue()
    for domain in ("c", "a", "b"):
        queue.add(domain, domain)
    assert order(queue) == ["c", "a", "b"]
    assert queue.take() is None


def test_each_domain_has_one_turn_before_any_has_two() -> None:
    queue = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        queue.add(item[0], item)
    assert order(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_a_domain_that_used_much_waits_for_those_that_used_little_but_not_forever() -> None:
    queue = FairQueue()
    queue.ended("heavy", 6.5)
    queue.add("heavy", "heavy")
    for number in range(4):
        queue.add(f"light{number}", f"light{number}")
    assert order(queue) == ["light0", "heavy", "light1", "light2", "light3"]


def test_a_light_document_waits_for_one_heavy_one_after_that_of_the_moment_at_most() -> None:
    """Whatever the number of heavy domains, once each has shown that it is one."""
    queue = FairQueue()
    for number in range(100):
        queue.ended(f"heavy{number}", 6.5)
        queue.add(f"heavy{number}", f"heavy{number}")
    waits = []
    for turn in range(1_000):
        if turn % 5 == 0:
            queue.add("light", "light")
            came = turn
        taken = queue.take()
        assert taken is not None
        queue.ended(taken, 0.1 if taken == "light" else 6.5)
        if taken == "light":
            waits.append(turn - came)
        else:
            queue.add(taken, taken)
    assert len(waits) == 200
    assert max(waits) == 1
    assert {queue.take() for _ in range(100)} == {f"heavy{number}" for number in range(100)}


def test_use_is_forgotten() -> None:
    queue = FairQueue()
    queue.ended("once", 5.0)
    for _ in range(10_000):
        queue.ended("other", 5.0)
    for item in ("used", "once"):
        queue.add(item, item)
    queue.ended("used", 0.1)
    assert order(queue) == ["once", "used"]
    for number in range(2 * REMEMBERED - 2):
        queue.ended(f"{number}", 0.1)
    assert repr(queue) == f"<FairQueue domains=0 remembered={REMEMBERED}>"


def test_what_no_longer_waits_has_no_turn() -> None:
    queue = FairQueue()
    for item in ("a1", "a2", "b1"):
        queue.add(item[0], item)
    queue.remove("a", "a1")
    queue.remove("b", "b1")
    assert order(queue) == ["a2"]
