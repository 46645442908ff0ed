"""docs/reference/robots.md names tests that exist, and Protego's deviations that are true."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from protego import Protego

from tests.politeness.rules import allowed

HERE = Path(__file__).parent
DOC = (HERE.parents[1] / "docs" / "reference" / "robots.md").read_text(encoding="utf-8")


def test_each_test_named_in_the_docs_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", DOC))
    defined = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    assert named
    assert named - defined == set()


def test_each_clause_of_section_2_stands_in_the_table() -> None:
    """A row whose last cell names no test does not count."""
    rows = dict.fromkeys(re.findall(r"^\| (2[.\d]*) \|.*`test_\w+`.*\|$", DOC, re.MULTILINE))
    clauses = "2.1 2.2 2.2.1 2.2.2 2.2.3 2.2.4 2.3 2.3.1.1 2.3.1.2 2.3.1.3 2.3.1.4 2.3.1.5 2.4 2.5"
    assert list(rows) == clauses.split()


STAR = "User-agent: *\n"


@pytest.mark.parametrize(
    ("body", "path", "by_the_rfc"),
    [
        (STAR + "Allow: /foo?bar\nDisallow: /foo*bars\n", "/foo?bars", False),
        (STAR + "Disallow: /a$\n", "/a$b", True),
        (STAR + "Allow: /a/index.html\nDisallow: /\n", "/a/", False),
        ("User-agent: our-bot\nFrobnicate: 1\nUser-agent: b\nDisallow: /\n", "/x", False),
        ("User-agent: our-bot\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\n", "/x", False),
        ("User-agent: our\nDisallow: /\n", "/x", True),
        ("User-agent: our-bot of ours\nDisallow: /\n", "/x", False),
        (STAR + "Disallow: /y\x85Disallow: /x\n", "/x", True),
        (STAR + "Disallow: /y\x0bDisallow: /x\n", "/x", True),
    ],
)
def test_protego_deviates_where_the_docs_say_so(body: str, path: str, by_the_rfc: bool) -> None:
    """When this fails because Protego has come round, the docs are to be shortened, and its role thought over."""
    assert allowed(body, path, "our-bot") is by_the_rfc
    assert Protego.parse(body).can_fetch("http://h" + path, "our-bot") is not by_the_rfc
