"""Ctrl-C in a terminal: the command says at once that it stops."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.screen import Screen

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("words", "folder"), [((), "demo-out"), (("--out", "its output"), "'its output'")])
def test_a_demo_says_which_commands_can_look_at_it(tmp_path: Path, words: tuple[str, ...], folder: str) -> None:
    small = ("--replicas", "1", "--pages", "20", "--domains", "2")
    with Screen(tmp_path, "demo", *small, *words, columns=400) as screen:
        assert screen.wait() == 0, screen.text
        assert f"`crawler audit {folder}` and `crawler export {folder}`" in screen.text
        assert f"`crawler repair --crawl demo --archive {folder}`" in screen.text


def test_an_interrupted_demo_is_not_judged(tmp_path: Path) -> None:
    with Screen(tmp_path, "demo", "--replicas", "1", "--pages", "2000") as screen:
        screen.wait_for("pages/s")
        screen.press("\x03")
        screen.wait_for("stopping", "interrupted, so the result is not judged")
        assert screen.wait() == 130
        assert "OK" not in screen.text
