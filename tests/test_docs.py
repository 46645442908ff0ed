"""The documents tell the truth: their commands parse, their keys and paths exist, the settings in them are settings."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from crawler.cli.main import app
from crawler.settings.load import load

ROOT = Path(__file__).parent.parent
PAGES = [
    *sorted(ROOT.glob("*.md")),
    ROOT / "deploy" / "README.md",
    ROOT / "seeds" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path | str, language: str) -> list[str]:
    """The blocks of code in `page`, a file or its text."""
    text = page.read_text() if isinstance(page, Path) else page
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands_in(page: Path | str) -> list[str]:
    """Each line of a shell block that begins with `crawler `."""
    lines = (line for block in blocks(page, "(?:sh|bash|console)") for line in block.replace("\\\n", " ").splitlines())
    return [text for line in lines if (text := line.strip().removeprefix("$ ")).startswith("crawler ")]


def commands() -> list[tuple[str, str]]:
    return [(named(page), text) for page in PAGES for text in commands_in(page)]


@pytest.mark.parametrize(("page", "text"), commands())
def test_the_commands_in_the_documents_parse(page: str, text: str) -> None:
    words = shlex.split(text, comments=True)
    words = words[: next((at for at, word in enumerate(words) if word in ("|", "&&", ">", ">>", "&")), len(words))]
    if words[1].startswith("-"):
        return
    command = app.get_command(click.Context(app), words[1])
    assert command is not None, f"{page}: there is no command {words[1]}"
    command.make_context(words[1], words[2:], resilient_parsing=False)


OF_OTHERS = ("docker ", "wb-manager ", "python ", "--build-arg ")
"""How code begins that has options of other programs."""


@pytest.mark.parametrize(
    "page", [*(ROOT / "docs/how-to").glob("*.md"), ROOT / "docs/tutorial.md", ROOT / "README.md"], ids=str
)
def test_options_in_the_text_of_a_page_exist(page: Path) -> None:
    """Those in blocks are checked with their commands."""
    known = set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs/reference/cli.md").read_text()))
    for code in re.findall(r"`([^`\n]+)`", page.read_text()):
        if not code.startswith(OF_OTHERS):
            assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)) <= known, code


TOML = [(named(page), block) for page in PAGES for block in blocks(page, "toml")]


@pytest.mark.parametrize(("page", "block"), TOML, ids=[page for page, _ in TOML])
def test_the_settings_in_the_documents_are_settings(page: str, block: str) -> None:
    load(None, tomllib.loads(block))


def test_links_paths_files_and_tests_in_the_documents_exist() -> None:
    """Whole links, with their anchors; paths from the root; files and tests that are named without a folder."""
    folders = ("crawler", "frontier", "politeness", "tests", "bench", "deploy")
    files = {path.name for folder in folders for path in (ROOT / folder).rglob("*.*")} | {"shop.py", "my_hooks.py"}
    tests = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    wrong = []
    for page in PAGES:
        text = page.read_text()
        paths = re.findall(r"`((?:crawler|frontier|politeness|tests|bench|deploy|docs|seeds)/[\w./-]*\.\w+)`", text)
        missing = [path for path in paths if not re.search(r"/(?:ROOM|NAME)\b", path) and not (ROOT / path).exists()]
        missing += set(re.findall(r"`(\w+\.(?:py|lua))`", text)) - files
        missing += set(re.findall(r"`(test_\w+)`", text)) - tests
        for link in re.findall(r"\]\(([^)\s]+)\)", without_blocks(text)):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if "://" not in link and not (target.exists() and (not anchor or anchor in anchors(target))):
                missing.append(link)
        wrong += [f"{named(page)}: {name}" for name in missing]
    assert wrong == []


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> list[str]:
    """The headings of `page` as mkdocs and GitHub turn them into anchors; they agree on headings of these characters."""
    headings = re.findall(r"^#+ (.*)$", without_blocks(page.read_text()), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings]


@pytest.mark.parametrize("index", ["docs/index.md"])
def test_an_index_names_every_page(index: str) -> None:
    page = ROOT / index
    linked = {(page.parent / link).resolve() for link in re.findall(r"\]\(([^)#:]+)", page.read_text())}
    pages = {one for folder in ("reference", "explanation", "how-to") for one in (ROOT / "docs" / folder).glob("*.md")}
    assert len(pages) > 30
    assert pages - linked == set()


def test_every_dependency_has_a_line() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = {
        re.split(r"[^\w.-]", one)[0].lower()
        for one in [*project["dependencies"], *(one for name in extras if name != "dev" for one in extras[name])]
    }
    table = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    rows = re.findall(r"^\| ([^|]*) \|", table, re.MULTILINE)[1:]
    listed = {name.strip() for row in rows for name in re.sub(r"\(.*?\)", "", row).split(",")}
    assert listed - {"---"} == required


def test_every_make_target_is_listed_with_a_line() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split())
    described = set(re.findall(r"^([a-z-]+):.*##", makefile, re.MULTILINE))
    assert targets == described


@pytest.mark.long
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        if os.environ.get("CI"):
            pytest.fail("mkdocs-material is missing")
        pytest.skip("needs mkdocs-material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # an announcement, not a warning about these pages
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr  # with --quiet, warnings would not count
    pages = sorted((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 30
    tags = "".join(
        tag for page in pages for tag in re.findall(r"<(?:script|link|img|iframe)\b[^>]*>", page.read_text())
    )
    assert re.findall(r"""(?:src|href)=["']?(?:https?:)?//[^"'\s>]+""", tags) == []
