"""Which pages are rendered with `render.mode = "auto"`, and what is learnt from them."""

from __future__ import annotations

import pytest

from crawler.page import Rendered
from crawler.worker.render_choice import MOST_AGAIN, RenderChoice, is_evidence
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
    assert found[:3] == [1, 2, 3] and len(found) <= 20
    many = RenderChoice()
    assert (
        sum(len(rendered_of(many, range(100), f"d{chr(97 + n % 26)}{chr(97 + n // 26)}", False)) for n in range(100))
        <= 20
    )


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
