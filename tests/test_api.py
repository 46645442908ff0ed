"""The public API: what `from crawler import ...` gives, and the page that describes it."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import crawler
from crawler import Exchange, Link, LinkKind, Outcome, Page, Phases, SinkContext
from tests.reference.api import CLASSES, INTERNAL

DOCS = Path(__file__).parents[1] / "docs"
PAGE = (DOCS / "reference" / "api.md").read_text()


def described(heading: str) -> set[str]:
    """The names in the first column of the table below `heading`."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| (`[^|]*`) \|", section, re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`(\w+)", cell)}


@pytest.mark.parametrize("cls", [Page, Exchange])
def test_the_page_describes_every_field(cls: type[Page] | type[Exchange]) -> None:
    assert described(f"`{cls.__name__}`") - {"label", "payload", "rejected_count"} == set(cls.__struct_fields__) - {
        "tag"
    }


def test_the_page_describes_every_name() -> None:
    assert described("Other names") | {"Page", "Exchange"} | {cls.__name__ for cls in CLASSES} == set(crawler.__all__)
    for name in (*LinkKind.__members__, *Outcome.__members__, *Phases._fields, *SinkContext.__struct_fields__):
        assert f"`{name}`" in PAGE, name
    assert set(Link.__struct_fields__) == {"url", "kind", "lastmod"}


def test_every_class_and_member_is_on_the_page_made_from_docstrings() -> None:
    text = (DOCS / "reference" / "classes.md").read_text()
    for cls in CLASSES:
        assert f"\n## `{cls.__name__}`\n" in text
        fields = set(getattr(cls, "__struct_fields__", ()))  # its docstring describes them
        for name in {name for name in vars(cls) if not name.startswith("_")} - INTERNAL - fields:
            assert f"\n### `{cls.__name__}.{name}`\n" in text


def test_every_name_can_be_imported() -> None:
    for name in crawler.__all__:
        assert getattr(crawler, name) is not None
    with pytest.raises(ImportError):
        from crawler import no_such_name  # type: ignore[attr-defined]  # noqa: F401


def test_a_command_that_needs_none_of_the_names_does_not_load_them() -> None:
    loaded = "import sys, crawler; print([name for name in sys.modules if name.startswith('crawler.')])"
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "[]\n"


def test_a_replica_loads_no_terminal_and_no_other_http_client() -> None:
    loaded = (
        "import sys, crawler.cli.run, crawler.app.replica, frontier.domains; frontier.domains.domain_of('www.a.test');"
        "print(sorted({'requests', 'rich', 'tldextract', 'crawler.parse.values'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", loaded], text=True) == "[]\n"


def test_the_documentation_imports_from_nowhere_else() -> None:
    examples = re.findall(r"^from (crawler\S*) import (.+)$", (DOCS / "how-to" / "extend.md").read_text(), re.MULTILINE)
    assert examples
    for module, names in examples:
        assert module == "crawler"
        assert set(names.split(", ")) <= set(crawler.__all__)


def test_examples_are_typed_against_the_api(tmp_path: Path) -> None:
    """A type checker sees the same classes through the package as where they are defined."""
    (tmp_path / "my_hooks.py").write_text(
        "from crawler import Page, PageHook, Sink, SinkContext, decoded\n"
        "def hook(page: Page) -> dict[str, object] | None:\n"
        "    return {'size': len(decoded(page.exchange))} if page.exchange else None\n"
        "typed: PageHook = hook\n"
        "def folder(context: SinkContext) -> str:\n"
        "    return context.folder.name + page_title(1)\n"
        "def page_title(page: Page) -> str:\n"
        "    return page.title\n"
    )
    config = Path(__file__).parents[1] / "pyproject.toml"
    command = [sys.executable, "-m", "mypy", "--config-file", config, tmp_path / "my_hooks.py"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert re.findall(r":(\d+): error: .*\[([\w-]+)\]", done.stdout) == [("6", "arg-type")], done.stdout


def test_the_names_are_those_of_their_modules() -> None:
    for module, names in crawler._MODULES.items():
        for name in names:
            assert getattr(crawler, name) is getattr(import_module(module), name)
