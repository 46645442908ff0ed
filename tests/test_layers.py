"""The imports go one way: crawler -> politeness -> frontier -> redis, and in the crawler from package to package."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

LAYERS = (
    {"__main__", "api", "testing"},
    {"cli"},
    {"app"},
    {"observe", "audit"},
    {"worker", "sinks", "handlers"},
    {"browser"},
    {"parse", "settings"},
    {"fetch", "scope", "plan", "identity"},
    {"crawler"},
    {"politeness"},
    {"frontier"},
)
"""The packages from top to bottom: each may import those below, and none beside it. "crawler" stands for the modules
directly in `crawler/`, which all packages there share, and "api" for `crawler/__init__.py`, the public API, of
which `crawler/testing.py` is a part."""

PACKAGES = ("crawler", "politeness", "frontier")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


@cache
def imports_of(module: str) -> set[str]:
    """Our modules that `module` imports: at its top, in a function, or for the type checker."""
    names = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            members = {f"{node.module}.{alias.name}" for alias in node.names} - {"crawler.__version__"}
            names |= members & MODULES.keys()
            if members - MODULES.keys():
                names.add(node.module or "")
    return names & MODULES.keys()


def package_of(module: str) -> str:
    top, *inner = module.split(".")
    if top != "crawler":
        return top
    if inner and (inner[0] in ("__main__", "testing") or (ROOT / "crawler" / inner[0]).is_dir()):
        return inner[0]
    return "crawler" if inner else "api"


def test_no_package_imports_one_above_or_beside_it() -> None:
    layer = {name: number for number, names in enumerate(LAYERS) for name in names}
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        for imported in sorted(imports_of(module))
        if package_of(imported) != package_of(module) and layer[package_of(imported)] <= layer[package_of(module)]
    ]
    assert upward == []


def test_what_shows_a_crawl_and_what_carries_it_out_meet_only_in_events() -> None:
    assert [m for m in MODULES if package_of(m) == "observe" and "worker" in map(package_of, imports_of(m))] == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: imports_of(module) - {module} for module in MODULES}
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("package", ["crawler", "politeness"])
def test_only_the_frontier_knows_redis(package: str) -> None:
    importers = [
        name for name, path in MODULES.items() if name.startswith(package) and "import redis" in path.read_text()
    ]
    assert importers == []
