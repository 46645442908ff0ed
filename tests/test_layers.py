"""The imports go one way: crawler -> politeness -> frontier. And no file grows out of hand."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ABOVE = {"frontier": {"politeness", "crawler"}, "politeness": {"crawler"}, "crawler": set()}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("package", ABOVE)
def test_nothing_imports_upwards(package: str) -> None:
    breaches = {str(path): imported(path) & ABOVE[package] for path in sources(package)}
    assert {path: names for path, names in breaches.items() if names} == {}


def test_only_the_store_knows_redis() -> None:
    knowing = [path.name for package in ABOVE for path in sources(package) if "redis" in imported(path)]
    assert knowing == ["store.py"]


@pytest.mark.parametrize("package", ABOVE)
def test_files_and_functions_stay_small(package: str) -> None:
    long = []
    for path in sources(package):
        text = path.read_text()
        if len(text.splitlines()) > LONGEST_FILE:
            long.append(str(path))
        for node in ast.walk(ast.parse(text)):
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            if is_function and (node.end_lineno or 0) - node.lineno > LONGEST_FUNCTION:
                long.append(f"{path}:{node.name}")
    assert long == []
