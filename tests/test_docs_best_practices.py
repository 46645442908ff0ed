"""docs/reference/best-practices.md has a row for each practice of the draft, and names a test in each that can have one."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[1] / "docs" / "reference" / "best-practices.md").read_text()
ROWS = [
    [cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\| 2\.\d \|.*$", PAGE, re.MULTILINE)
]

CLAUSES = {"2.1": 2, "2.2": 2, "2.3": 9, "2.4": 1, "2.5": 2, "2.6": 3}
"""Section of draft-illyes-webbotauth-cbcp-01 -> the practices that it asks for."""

OF_THE_OPERATOR = {"endpoints are public, available and fast"}


def test_each_practice_of_the_draft_has_a_row() -> None:
    assert {clause: sum(row[0] == clause for row in ROWS) for clause in CLAUSES} == CLAUSES
    assert "draft-illyes-webbotauth-cbcp-01" in PAGE


def test_each_row_names_what_shows_it() -> None:
    for _, practice, what, tests in ROWS:
        assert what
        assert "`test_" in tests or "identity" in what or practice in OF_THE_OPERATOR, practice
