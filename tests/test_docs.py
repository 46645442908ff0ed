"""The documents tell the truth: their commands parse, their keys and paths exist, the settings in them are settings."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import typer.main

from crawler.cli.main import app
from crawler.settings.model import load
from frontier.keys import CrawlKeys

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "seeds" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands() -> list[tuple[str, str]]:
    """(page, command) for each line of a shell block that begins with `crawler `."""
    found = []
    for page in PAGES:
        for block in blocks(page, "(?:sh|bash|console)"):
            for line in block.replace("\\\n", " ").splitlines():
                text = line.strip().removeprefix("$ ")
                if text.startswith("crawler "):
                    found.append((page.name, text))
    return found


@pytest.mark.parametrize(("page", "text"), commands())
def test_the_commands_in_the_documents_parse(page: str, text: str) -> None:
    words = shlex.split(text, comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ("|", "&&", ">", ">>", "&")), len(words))]
    group = typer.main.get_command(app)
    if words[1].startswith("-"):
        return
    command = group.get_command(None, words[1])  # type: ignore[attr-defined,arg-type]
    assert command is not None, f"{page}: there is no command {words[1]}"
    command.make_context(words[1], words[2:], resilient_parsing=False)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_settings_in_the_documents_are_settings(page: Path) -> None:
    for block in blocks(page, "toml"):
        load(None, tomllib.loads(block))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_in_the_documents_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    named = re.findall(r"`((?:crawler|frontier|politeness|tests|deploy|docs|seeds)/[\w./-]*\.\w+)`", text)
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_key_of_redis_is_in_the_table() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Keys in Redis")[2].partition("## Decisions")[0]
    keys = CrawlKeys("crawl", 1)
    names = {value.removeprefix("{crawl}:") for value in vars(keys).values() if isinstance(value, str) and ":" in value}
    shard = keys.shards[0]
    names |= {
        getattr(shard, name).rpartition(":")[2]
        for name in ("owner", "due", "leases", "waiting", "stats", "dead", "robots")
    }
    assert {name for name in names if f":{name}" not in table} == set()


def test_every_make_target_is_listed_with_a_line() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    described = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    assert targets == described
