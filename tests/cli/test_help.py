"""The help is for people: groups of commands, and values with names. The shell completes closed lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import get_args

import click
import pytest

from crawler.cli.main import GROUPS, app
from crawler.scope.scope import Kind
from crawler.settings import reference
from tests.reference.pages import commands
from tests.typed import Typed

COMMANDS = [path.split()[1:] for path, _ in commands(app)]
CONTEXT = click.Context(app)


@pytest.fixture(autouse=True)
def wide(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")


def test_the_commands_are_in_groups(typed: Typed) -> None:
    shown = typed("--help").out
    assert re.findall(r"^(\w+):$", shown, re.M) == ["Options", *GROUPS]
    for title, names in GROUPS.items():
        below = shown.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        assert re.findall(r"^  (\w+) ", below, re.M) == list(names)
    assert all(app.get_command(CONTEXT, name) is not None for name in app.list_commands(CONTEXT))


@pytest.mark.parametrize("path", [[], *COMMANDS], ids=" ".join)
def test_no_help_shows_types_of_python(typed: Typed, path: list[str]) -> None:
    done = typed(*path, "--help")
    assert done.code == 0
    assert not re.search(r"<\w+|\bTEXT\b|\blist\[|\bINTEGER\b|\bBOOL|Sentinel|UNSET", done.out), done.out
    assert not re.search(r"Usage:.*(\[\[|\.{4})", done.out), "the brackets and dots of a metavar would be repeated"


def test_values_are_named(typed: Typed) -> None:
    shown = typed("crawl", "--help").out
    assert re.search(r"-o, --out FOLDER ", shown)
    assert re.search(r"--delay SECONDS ", shown)
    assert re.search(r"--keep-settings {9,}If", shown), "a flag takes no value"
    assert "[OPTIONS] [URLS]..." in shown
    shown = typed("export", "--help").out
    assert "[OPTIONS] ARCHIVES..." in shown
    assert "--format [jsonl|parquet|markdown|wacz|csv]" in shown
    assert "[OPTIONS] DOMAIN [SECONDS]" in typed("delay", "--help").out


def completed(line: str) -> list[str]:
    """Return what bash would offer for `line`, from a process whose name is `crawler`."""
    position = str(len(line.split()) - (not line.endswith(" ")))
    shell = {"_CRAWLER_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": position}
    program = "import sys; sys.argv = ['crawler']; from crawler.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **shell}, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return [word.partition(",")[2] for word in done.stdout.split()]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("crawler init --preset ", list(reference.PRESETS)),
        ("crawler crawl https://a.test/ --scope ", list(get_args(Kind))),
        ("crawler dead requeue --reason robots_", ["robots_unreachable"]),
        ("crawler config explain politeness.d", ["politeness.delay"]),
        ("crawler config explain max_p", ["max_pages"]),
        ("crawler run --log-level ", ["debug", "info", "warning", "error"]),
        ("crawler crawl --log-format j", ["json"]),
        ("crawler config ch", ["check"]),
        ("crawler st", ["status", "stop"]),
    ],
)
def test_the_shell_completes(line: str, words: list[str]) -> None:
    assert completed(line) == words


def test_completion_is_shown_for_the_shell(typed: Typed) -> None:
    assert "_CRAWLER_COMPLETE" in typed("--show-completion", environment={"SHELL": "/bin/zsh"}).out
    refused = typed("--show-completion", environment={"SHELL": "/bin/tcsh"})
    assert (refused.code, refused.err) == (2, "error: SHELL is 'tcsh': completion is for bash, zsh and fish\n")
