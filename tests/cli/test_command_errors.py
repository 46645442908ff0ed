"""A command line that cannot be parsed is answered in one line, which says what to type instead."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from crawler.cli.main import app
from tests.cli.screen import Screen
from tests.reference.pages import commands
from tests.typed import Typed

COMMANDS = {path.removeprefix("crawler "): command for path, command in commands(app)}


def long_options(command: click.Command) -> set[str]:
    return {name for one in command.params for name in one.opts if name.startswith("--")}


def mistyped(option: str, number: int) -> str:
    """Return `option` as it is often written: with underscores, in capitals, or with one letter too many."""
    ways = (f"--{option[2:].replace('-', '_')}", f"{option}x", f"--{option[2:].upper()}")
    return next(way for way in (*ways[number % len(ways) :], *ways) if way != option)


@pytest.mark.parametrize("words", COMMANDS)
def test_each_option_that_is_almost_right_is_suggested(typed: Typed, words: str) -> None:
    for number, option in enumerate(sorted(long_options(COMMANDS[words])), len(words)):
        done = typed(*words.split(), mistyped(option, number), "1")
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert f"did you mean {option}?" in done.err


REQUIRED = [words for words, command in COMMANDS.items() if any(one.required for one in command.params)]


def test_some_commands_need_an_argument() -> None:
    assert {"export", "why", "forget", "config check"} <= set(REQUIRED)


@pytest.mark.parametrize("words", REQUIRED)
def test_a_missing_argument_is_named_with_an_example_that_can_be_parsed(typed: Typed, words: str) -> None:
    done = typed(*words.split())
    said = re.fullmatch(rf"error: `crawler {words}` needs [A-Z]+ \(.+\); for example: crawler (.+)\n", done.err)
    assert said is not None, done.err
    assert (done.code, said[1].startswith(words)) == (2, True)
    tried = typed(*shlex.split(said[1].partition(" |")[0])).err
    assert re.search("needs|takes no|Invalid value", tried) is None, tried


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("crawl x --max_pages 3", "`crawler crawl` takes no --max_pages; did you mean --max-pages?"),
        ("crawl x --maxpages=3", "`crawler crawl` takes no --maxpages; did you mean --max-pages?"),
        ("crawl x --replica 3", "`crawler crawl` takes no --replica; did you mean --replicas?"),
        ("crawl -z", "`crawler crawl` takes no -z; `crawler crawl --help` lists its options"),
        ("crawl x --out", "`crawler crawl`: option '--out' requires an argument: --out FOLDER"),
        ("status --until_empty", "`crawler status` takes no --until_empty; `crawler status --help` lists its options"),
        (
            "seed --delay 2",
            "`crawler seed` takes no --delay; the setting is politeness.delay, in a file for --settings or as "
            "CRAWLER_POLITENESS__DELAY",
        ),
        ("audit x --deley 3", "`crawler audit` takes no --deley; did you mean --delay?"),
        (
            "config check c.toml --max-pages 3",
            "`crawler config check` takes no --max-pages; the setting is limits.max_pages, in a file for --settings or as "
            "CRAWLER_LIMITS__MAX_PAGES",
        ),
        ("--crawl news status", "`crawler` takes no --crawl; `crawler --help` lists its options"),
        ("status news", "`crawler status` takes no argument 'news'; to name a crawl: --crawl news"),
        (
            "run https://a.test",
            "`crawler run` takes no argument 'https://a.test'; URLs are for `crawler crawl` and `crawler seed`",
        ),
        ("statsu", "No such command 'statsu'; did you mean status?"),
        ("requeue", "No such command 'requeue'; use `crawler dead requeue`"),
        ("explain", "No such command 'explain'; use `crawler why`"),
        ("start", "No such command 'start'; use `crawler run`"),
        ("paws", "No such command 'paws'; `crawler --help` lists them"),
        ("config explain depth", "there is no setting 'depth'; did you mean max_depth?"),
        ("config chek", "No such command 'chek'; did you mean check?"),
        ("help", "No such command 'help'; `crawler --help` lists them"),
        ("https://a.test", "No such command 'https://a.test'; to crawl a site: crawler crawl https://a.test"),
    ],
)
def test_a_mistake_is_answered_in_one_line(typed: Typed, tmp_path: Path, words: str, said: str) -> None:
    done = typed(*words.split())
    assert (done.code, done.out, done.err) == (2, "", f"error: {said}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_group_without_a_command_shows_its_help(typed: Typed) -> None:
    done = typed("dead")
    assert (done.code, "requeue" in done.out + done.err, "error:" in done.out + done.err) == (2, True, False)


def test_a_terminal_shows_no_box(tmp_path: Path) -> None:
    with Screen(tmp_path, "export", columns=80) as screen:
        assert screen.wait() == 2
        assert screen.text.startswith("error: `crawler export` needs ARCHIVES")
        assert "\u256d" not in screen.text
