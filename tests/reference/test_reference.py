"""The reference pages say what the code says."""

from __future__ import annotations

import pytest

from crawler.cli.main import app
from tests.reference.pages import DOCS, PAGES, commands


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_the_one_that_the_code_makes(name: str) -> None:
    assert (DOCS / name).read_text() == PAGES[name](), "run python -m tests.reference"


def test_every_command_says_what_it_does_and_gives_an_example() -> None:
    for path, command in commands(app):
        assert command.help, path
        assert f"{path}" in command.help, f"{path} has no example"


def test_every_option_says_what_it_is_for() -> None:
    for path, command in commands(app):
        for parameter in command.params:
            assert parameter.help or parameter.name == "help", (path, parameter.name)
