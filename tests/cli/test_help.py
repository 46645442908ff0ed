"""The help is for people: groups of commands, and values with names. The shell completes closed lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, get_args

import pytest

from crawler.cli import completion
from crawler.cli.command_registry import GROUPS, MODULES, load_command
from crawler.scope.scope import Kind
from crawler.settings import reference
from crawler.settings.tables import ReplicaTable, keys_of
from tests.typed import Typed


def paths() -> Iterator[tuple[str, ...]]:
    for name in MODULES:
        command: Any = load_command(name)
        yield (name,)
        for below in getattr(command, "commands", ()):
            yield (name, below)


def test_the_commands_are_in_groups(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = typed("--help").out
    titles = re.findall(r"^\W+(\w+) ─", shown, re.M)
    assert titles == ["Options", "Crawl", "Watch", "Control", "Data", "Settings"]
    for title, commands in GROUPS.items():
        panel = shown.partition(f" {title} ─")[2].partition("╰")[0]
        assert re.findall(r"^│ (\w+) ", panel, re.M) == list(commands)


@pytest.mark.parametrize("path", [(), *paths()], ids=" ".join)
def test_no_help_shows_types_of_python(typed: Typed, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    done = typed(*path, "--help")
    assert done.code == 0
    assert not re.search(r"<\w+|\bTEXT\b|\blist\[|\bINTEGER\b|\bBOOL", done.out), done.out
    assert not re.search(r"Usage:.*(\[\[|\.{4})", done.out), "the brackets and dots of a metavar would be repeated"
    assert not re.search(r"`\[?\]?`", done.out), "words in brackets are markup, and vanish"


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_the_description_fills_the_lines_of_a_narrow_terminal(
    typed: Typed, monkeypatch: pytest.MonkeyPatch, path: tuple[str, ...]
) -> None:
    """No line ends where one of the source ends."""
    monkeypatch.setenv("COLUMNS", "80")
    description = typed(*path, "--help").out.partition("Usage:")[2].partition("╭")[0].partition("Example")[0]
    for paragraph in re.split(r"\n\s*\n", description):
        lines = [line.strip() for line in paragraph.splitlines()]
        for line, after in pairwise(lines):
            assert len(f" {line} {after.partition(' ')[0]}") > 79, (line, after)


def test_values_are_named(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = typed("crawl", "--help").out
    assert re.search(r"--out +-o +FOLDER ", shown)
    assert re.search(r"--delay +SECONDS ", shown)
    assert re.search(r"--keep-settings {20,}If", shown), "a flag takes no value"
    assert "[OPTIONS] [URL]..." in shown
    assert "[OPTIONS] {PATH}..." in typed("export", "--help").out
    assert re.search(r"--format +jsonl\|parquet\|markdown\|wacz\|csv ", typed("export", "--help").out)
    shown = typed("delay", "--help").out
    assert "[OPTIONS] {DOMAIN} [SECONDS]" in shown
    assert re.search(r"SECONDS +\[x>=0\] +Seconds", shown)


def completed(line: str) -> list[str]:
    """Return what bash would offer for `line`, from a process whose name is `crawler`."""
    words = line.split()
    position = str(len(words) - (not line.endswith(" ")))
    shell = {"_CRAWLER_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": position}
    program = "import sys; sys.argv = ['crawler']; from crawler.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **shell}, capture_output=True, text=True, check=False
    )
    assert not done.stderr
    return done.stdout.split()


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
    ],
)
def test_the_shell_completes(line: str, words: list[str]) -> None:
    assert completed(line) == words


def test_the_completed_words_are_those_that_are_accepted() -> None:
    keys = keys_of(ReplicaTable)
    assert tuple(reference.PRESETS) == completion.PRESETS
    assert get_args(Kind) == completion.SCOPES
    assert keys["log_level"].choices == completion.LOG_LEVELS
    assert keys["log_format"].choices == completion.LOG_FORMATS


def test_an_option_of_another_command_is_refused_with_the_whole_name(typed: Typed) -> None:
    done = typed("config", "check", "c.toml", "--max-pages", "3")
    assert done.code == 2
    assert "error: `crawler config check` takes no --max-pages; use --max-pages with `crawler crawl`" in done.err
