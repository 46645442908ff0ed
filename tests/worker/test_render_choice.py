"""Which pages are rendered with `render.mode = "auto"`, and what is learnt from them."""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

import pytest

from crawler.page import Rendered
from crawler.worker.render_choice import MOST_AGAIN, SHAPES_AGAIN, RenderChoice, is_evidence
from frontier.entries import Entry


def page(number: int, path: str = "doc") -> Entry:
    return Entry(f"https://site.test/{path}/{number}", "site.test")


def rendered_of(choice: RenderChoice, pages: range, path: str, gains: bool) -> list[int]:
    """Which of `pages` are rendered if each brings something, or none does."""
    found = []
    for number in pages:
        if why := choice.choose(page(number, path), "ask"):
            choice.learn(page(number, path), why, gains)
            found.append(number)
    return found


def test_a_static_site_of_ten_thousand_pages_is_rendered_at_most_twenty_times() -> None:
    choice = RenderChoice()
    found = rendered_of(choice, range(1, 10_001), "doc", gains=False)
    assert found[:3] == [1, 2, 4] and len(found) <= 20


@pytest.mark.parametrize("shapes", [3, 10, 30, 100])
@pytest.mark.parametrize("kinds", [1, 4, 100])
def test_a_static_site_of_many_shapes_is_not_rendered_more_often(shapes: int, kinds: int) -> None:
    """`kinds`: of scripts that its shapes have."""
    waiting = [(shape, number) for number in range(10_000 // shapes) for shape in range(shapes)]
    Random(shapes).shuffle(waiting)
    choice, rendered = RenderChoice(), 0
    for shape, number in waiting:
        entry, scripts = page(number, f"d{chr(97 + shape % 26)}{chr(97 + shape // 26)}"), 1 + shape % kinds
        if why := choice.choose(entry, "ask", partial(frozenset, {scripts})):
            choice.learn(entry, why, False, frozenset({scripts}))
            rendered += 1
    assert rendered <= 20


@pytest.mark.parametrize(
    ("shapes", "pages", "lists", "scripts"),
    [
        *[(1, 900, 100, 5), (3, 300, 100, 5), (10, 100, 20, 5), (100, 20, 100, 5)],
        *[(10, 100, 5, 7), (30, 100, 5, 7), (30, 300, 20, 7), (100, 100, 5, 7)],
    ],
)
@pytest.mark.parametrize("seed", range(5))
def test_lists_are_found_among_pages_that_need_no_browser(
    shapes: int, pages: int, lists: int, scripts: int, seed: int
) -> None:
    """In any order. `scripts`: those of the lists; those of the others are 5."""
    kinds = [f"d{chr(97 + shape % 26)}{chr(97 + shape // 26)}" for shape in range(shapes)]
    waiting = [page(number, kind) for kind in kinds for number in range(pages)]
    waiting += [page(number, "list") for number in range(lists)]
    Random(seed).shuffle(waiting)
    choice, rendered, in_vain = RenderChoice(), set[str](), 0
    for entry in waiting:
        gains = "/list/" in entry.url
        its_scripts = partial(frozenset, {scripts if gains else 5})
        if why := choice.choose(entry, "ask", its_scripts):
            rendered.add(entry.url)
            in_vain += not gains
            choice.learn(entry, why, gains, its_scripts())
        waiting += choice.take_skipped(entry)
    assert {page(number, "list").url for number in range(lists)} <= rendered
    assert in_vain <= 40


@pytest.mark.parametrize("shapes", [1, 3, 30])
def test_a_domain_that_moves_between_replicas_is_not_rendered_more_often(shapes: int) -> None:
    replicas, learnt, rendered = [RenderChoice() for _ in range(4)], "", 0
    for number in range(10_000):
        entry, choice = page(number, "abc"[number % shapes % 3] * (1 + number % shapes)), replicas[number // 100 % 4]
        choice.recall("site.test", learnt)
        if why := choice.choose(entry, "ask"):
            learnt = choice.learn(entry, why, False)
            rendered += 1
    assert rendered <= 20 and len(learnt) < 2_000


def test_shapes_that_need_a_browser_are_known_to_the_next_replica() -> None:
    first, second = RenderChoice(), RenderChoice()
    rendered_of(first, range(5), "list", gains=True)
    second.recall("site.test", first.learn(page(5, "list"), "shape", True))
    assert second.choose(page(6, "list"), "ask") == "shape"


def test_a_shape_that_needs_a_browser_stays_known_among_many_that_need_none() -> None:
    first, second = RenderChoice(), RenderChoice()
    rendered_of(first, range(5), "list", gains=True)
    for number in range(60):
        learnt = first.learn(page(1, "x" * (number + 1)), "sample", False)
    second.recall("site.test", learnt)
    assert second.choose(page(6, "list"), "ask") == "shape"


@pytest.mark.parametrize("learnt", ["", "x", "[1", '["a"]', "[1,2,3,[-1],{}]", "{}", "\ud800", '[0,0,0,[],{"a":[1]}]'])
def test_what_cannot_be_read_teaches_nothing(learnt: str) -> None:
    choice = RenderChoice()
    choice.recall("site.test", learnt)
    assert choice.choose(page(1), "ask") == "sample"


def test_lists_of_any_number_of_shapes_are_found_by_a_trait_of_their_own() -> None:
    """The other shapes have traits of six kinds."""
    for shapes in (10, 50, 200):
        waiting = [page(number, "d" * (1 + number % shapes)) for number in range(10_000)]
        waiting += [page(number, "list") for number in range(10)]
        Random(shapes).shuffle(waiting)
        choice, rendered = RenderChoice(), set[str]()
        for entry in waiting:
            kind = entry.url.split("/")[3]
            traits = frozenset({1, 99 if kind == "list" else 2 + len(kind) % 6})
            if why := choice.choose(entry, "ask", partial(frozenset, traits)):
                rendered.add(entry.url)
                choice.learn(entry, why, kind == "list", traits)
            waiting += choice.take_skipped(entry)
        assert {page(number, "list").url for number in range(10)} <= rendered


def test_shapes_that_ask_for_data_of_their_own_are_all_looked_at() -> None:
    """Up to a hundred: they are not static, but most of them may bring nothing."""
    choice, rendered = RenderChoice(), Counter[str]()
    for number in range(20_000):
        kind = "d" * (1 + number % 200)
        if why := choice.choose(page(number, kind), "ask"):
            choice.learn(page(number, kind), why, False, data=frozenset({number}))
            rendered[kind] += 1
    assert 100 <= len(rendered) <= rendered.total() <= 130


def test_pages_of_a_shape_that_needs_a_browser_are_all_rendered() -> None:
    choice = RenderChoice()
    assert rendered_of(choice, range(50), "list", gains=True) == list(range(50))
    assert choice.take_skipped(page(1, "list")) == []


def test_pages_that_were_settled_without_a_browser_are_visited_again() -> None:
    choice = RenderChoice()
    before = rendered_of(choice, range(1, 41), "doc", gains=False)
    assert choice.take_skipped(page(1)) == []
    after = rendered_of(choice, range(41, 1_000), "doc", gains=True)
    assert after[-50:] == list(range(950, 1_000))
    again = choice.take_skipped(page(999))
    skipped = set(range(1, 1_000)) - set(before) - set(after)
    assert {entry.url for entry in again} == {page(number).url for number in skipped}
    assert {entry.mode for entry in again} == {"again"}
    assert choice.take_skipped(page(999)) == []


def test_no_more_pages_are_remembered_than_can_be_visited_again() -> None:
    choice = RenderChoice()
    rendered_of(choice, range(5_000), "doc", gains=False)
    rendered_of(choice, range(5_000, 50_000), "doc", gains=True)
    assert len(choice.take_skipped(page(1))) == MOST_AGAIN


def test_only_the_pages_of_the_shapes_seen_last_are_remembered() -> None:
    choice, letters = RenderChoice(), "abcdefghijklmnop"
    folders = [first + second for first in letters for second in letters]
    assert len(folders) > 2 * SHAPES_AGAIN
    for folder in folders:
        rendered_of(choice, range(100), folder, gains=False)
    for folder, has_pages in ((folders[0], False), (folders[-1], True)):
        for number in range(2):
            choice.learn(page(number, folder), "sample", has_gained=True)
        assert bool(choice.take_skipped(page(1, folder))) == has_pages


def test_shells_are_rendered_unless_that_brings_nothing() -> None:
    choice = RenderChoice()
    for number in range(5):
        assert choice.choose(page(number), "yes") == "shell"
        choice.learn(page(number), "shell", has_gained=False)
    assert choice.choose(page(5), "yes") != "shell"
    assert choice.choose(page(6, "app"), "yes") == "shell"
    assert choice.choose(page(7), "no") is None


@pytest.mark.parametrize(
    ("rendered", "says_something"),
    [
        (Rendered("done", 1.0, requests=8), True),
        (Rendered("done", 1.0, requests=8, refused={"type image": 90, "navigation": 3}), True),
        (Rendered("done", 1.0, requests=8, refused={"robots": 3}), False),
        (Rendered("done", 1.0, refused={"method": 1}), False),
        (Rendered("time", 20.0, requests=8), False),
    ],
)
def test_failures_teach_nothing(rendered: Rendered, says_something: bool) -> None:
    assert is_evidence(rendered) == says_something
