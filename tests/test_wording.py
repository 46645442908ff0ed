"""Messages count things in plain English ("1 page", and not "1 pages"), and a name uses a word for one thing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from crawler.wording import count_of, with_place

ROOT = Path(__file__).parents[1]
CRAWLER = ROOT / "crawler"

COUNTED = (
    *(
        "addresses",
        "crawls",
        "domains",
        "failures",
        "files",
        "hosts",
        "letters",
        "links",
        "machines",
        "masters",
    ),
    *("nodes", "origins", "pages", "ports", "problems", "records", "redirects", "replicas", "requests", "responses"),
    *("results", "rows", "seeds", "settings", "shards", "tries", "URLs", "volumes"),
)
_NAMED_AFTER = re.compile(rf"^ (?:(?!has |runs )[\w.-]+ )?(?:{'|'.join(COUNTED)})\b(?![/_.=])")

LEFT = {
    "plan/report.py": "formulas, in which the nouns are units",
    "simweb": "the synthetic web of tests",
}
"""Files in which a number may stand before a plural, and why."""


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("page",), "0 pages"),
        (1, ("page",), "1 page"),
        (2, ("page",), "2 pages"),
        (1_234, ("more domain",), "1,234 more domains"),
        (1, ("try", "tries"), "1 try"),
        (2, ("try", "tries"), "2 tries"),
        (2, ("address",), "2 addresses"),
        (2, ("crash",), "2 crashes"),
    ],
)
def test_a_noun_agrees_with_its_number(number: int, words: tuple[str, ...], text: str) -> None:
    assert count_of(number, *words) == text


def test_commands_in_messages_get_the_options_that_select_the_crawl_once() -> None:
    message = "run `crawler reshard --crawl a --shards 8` again, or `crawler repair`"
    assert with_place([message], "--crawl a --redis r") == [
        "run `crawler reshard --shards 8 --crawl a --redis r` again, or `crawler repair --crawl a --redis r`"
    ]


def numbers_before_plurals(path: Path) -> list[str]:
    """The f-strings in which a value stands before a noun in the plural."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.JoinedStr):
            for value, text in pairwise(node.values):
                if not isinstance(value, ast.FormattedValue) or ast.unparse(value.value).isupper():
                    continue  # a constant is not 1
                is_fraction = value.format_spec is not None and "f" in ast.unparse(value.format_spec)[1:]
                if not is_fraction and isinstance(text, ast.Constant) and _NAMED_AFTER.match(str(text.value)):
                    found.append(f"{path.relative_to(CRAWLER)}:{node.lineno}: {ast.unparse(node)}")
    return found


def test_every_counted_noun_agrees_with_its_number() -> None:
    """`count_of` puts it into the right form. A `repr` and names of fields are not sentences."""
    paths = [path for path in CRAWLER.rglob("*.py") if not str(path.relative_to(CRAWLER)).startswith(tuple(LEFT))]
    found = [line for path in sorted(paths) for line in numbers_before_plurals(path) if "f'<" not in line]
    assert found == []


def test_the_live_page_counts_in_the_same_way() -> None:
    """In its script, `counted` does what `count_of` does."""
    script = (CRAWLER / "observe" / "web" / "live.html").read_text()
    assert re.findall(rf'\+ "[ ,]*(?:{"|".join(COUNTED)})\b', script) == []


def names_in(path: Path) -> list[str]:
    """The name of the module, and those of its classes and functions."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [path.stem, *(node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds))]


def words_of(name: str) -> set[str]:
    return set(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().split("_"))


MODULES = [path for package in ("crawler", "politeness", "frontier") for path in sorted((ROOT / package).rglob("*.py"))]


def test_a_name_says_how_something_happens_again() -> None:
    """It is requeued, repeated, retried or visited: "again" says none of these."""
    found = [
        f"{path.relative_to(ROOT)}: {name}" for path in MODULES for name in names_in(path) if "again" in words_of(name)
    ]
    assert found == []


def test_a_revisit_is_a_record_of_a_warc_file() -> None:
    """A later visit of a known page is `[recrawl]` in names, and a page that is visited again in texts."""
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in MODULES
        if path.parent.name != "sinks"
        for name in names_in(path)
        if {"revisit", "revisits", "revisited"} & words_of(name) and name != "revisits"  # a Redis key
    ]
    assert found == []
    pages = [page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if page.name != "CHANGELOG.md"]
    texts = [re.sub(r"`[^`]*`", "", " ".join(page.read_text().split())) for page in sorted(pages)]
    assert [said for text in texts for said in re.findall(r"revisit(?! record).{20}", text, re.IGNORECASE)] == []


SHARED_NAMES = {
    "__init__",
    "__main__",
    "errors",  # of each package
    *(
        "control",
        "crawl",
        "export",
        "field_types",
        "forget",
        "repair",
        "reshard",
        "trial",
    ),  # commands, and what they do
}


def test_no_two_modules_have_one_name() -> None:
    """Except a command in `crawler/cli/` and the module that does what the command asks for."""
    stems = Counter(path.stem for path in MODULES)
    assert {stem for stem, number in stems.items() if number > 1} == SHARED_NAMES


VAGUE = {"checks", "helpers", "keys", "misc", "notes", "settings", "results", "revisits", "usage", "utils", "visit"}
"""Names that do not say of what: Redis keys or signing keys, what an owner allows or what a crawl has used."""


def test_the_name_of_a_module_says_of_what_it_is() -> None:
    assert [str(path.relative_to(ROOT)) for path in MODULES if path.stem in VAGUE] == []
