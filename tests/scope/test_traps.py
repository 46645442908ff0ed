"""Traps: URLs of which a site can generate an unlimited number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.scope.scope import TRAP_REASONS, TrapPolicy, judge_trap

SITE = "http://example.com"
DEFAULT = TrapPolicy()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/" + "x" * 1024, "length"),
        ("/" + "/".join(map(str, range(30))), "path_depth"),
        ("/docs/a/a/a/b", "repetition"),
        ("/a/b/a/b/a/b", "repetition"),
        ("/a/b/c/d/a/b/c/d/a/b/c/d", "repetition"),
        ("/x/a/y/a/z/a/w/a/v/a/u", "repetition"),
        ("/?" + "&".join(f"a{number}=1" for number in range(25)), "params"),
        ("/login?next=%252Flogin%253Fnext%253D%25252F", "nesting"),
    ],
)
def test_traps_are_seen(path: str, reason: str) -> None:
    assert judge_trap(SITE + path, DEFAULT) == reason


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/1/1/1",
        "/2011/11/11/a-title/",
        "/doc/doc/html/html/index.html",
        "/a/b/a/b/c/d",
        "/com/example/app/com/example/app/Main.html",
        "//////",
        "////a////b////",
        "/a?next=%2Fa%3Fb%3D%252F",
        "/?" + "&".join(f"a{number}=1" for number in range(12)),
        "/" + "%D0%B0" * 150,
    ],
)
def test_real_pages_are_left_alone(path: str) -> None:
    assert judge_trap(SITE + path, DEFAULT) is None


def test_limits_are_settings() -> None:
    policy = TrapPolicy(max_length=60, max_segments=5, max_repeats=1, max_params=1)
    given = ("/" + "x" * 60, "/1/2/3/4/5/6", "/1/2/1/2/5", "/?a&b")
    assert [judge_trap(SITE + path, policy) for path in given] == list(TRAP_REASONS[:4])


@given(st.text(st.sampled_from("/ab?&%25"), max_size=60))
def test_any_path_gets_an_answer(path: str) -> None:
    assert judge_trap(f"{SITE}/{path}", DEFAULT) in (None, *TRAP_REASONS)


@given(st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), st.integers(5, 8))
def test_a_pile_of_the_same_is_a_trap(cycle: list[str], times: int) -> None:
    """A page with a relative link to `cycle/` eventually generates such URLs."""
    assert judge_trap(f"{SITE}/{'/'.join(cycle * times)}/", DEFAULT) is not None
