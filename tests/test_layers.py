"""The imports go one way: crawler -> politeness -> frontier, and in the crawler from room to room. Files stay short."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ABOVE = {"frontier": {"politeness", "crawler"}, "politeness": {"crawler"}, "crawler": set()}
LONGEST_FILE = 400
LONGEST_FUNCTION = 60

SHARED = {"page", "defects", "errors", "events", "hooks", "logs", "redis_retry", "wording"}
"""The modules of `crawler/` that are in no room. All rooms may import them. They count as the room "crawler". The public
API, `crawler/__init__.py`, is for other people's code: it counts as the room "api", and nothing here imports from it but
the version."""

FLOORS = (
    {"__main__", "api"},
    {"cli"},
    {"app", "simweb"},
    {"observe", "audit"},
    {"worker", "sinks", "handlers"},
    {"parse", "settings"},
    {"fetch", "scope", "plan", "identity"},
    {"crawler"},
    {"politeness"},
    {"frontier"},
)
"""The rooms from top to bottom. Those of one floor do not know each other."""

ALLOWED = {
    "__main__": {"cli"},
    "api": {"app", "handlers", "sinks", "crawler"},
    "cli": {
        *("app", "simweb", "observe", "audit", "sinks", "settings", "fetch", "scope", "plan", "identity"),
        *("crawler", "frontier"),
    },
    "app": {
        *("observe", "worker", "sinks", "handlers", "parse", "settings", "fetch", "scope", "identity"),
        *("crawler", "politeness", "frontier"),
    },
    "simweb": set(),
    "observe": {"sinks", "settings", "scope", "plan", "crawler", "politeness", "frontier"},
    "audit": {"sinks", "parse", "identity", "crawler", "politeness", "frontier"},
    "worker": {"parse", "fetch", "scope", "crawler", "politeness", "frontier"},
    "sinks": {"parse", "scope", "crawler", "politeness", "frontier"},
    "handlers": {"parse", "crawler", "frontier"},
    "parse": {"scope", "crawler", "politeness", "frontier"},
    "settings": {"fetch", "scope", "identity", "crawler", "politeness", "frontier"},
    "fetch": {"crawler", "frontier"},
    "scope": {"crawler", "frontier"},
    "plan": {"crawler"},
    "identity": {"crawler"},
    "crawler": {"politeness", "frontier"},
    "politeness": {"frontier"},
    "frontier": set(),
}
"""Room -> the rooms that it imports."""

STRANGERS = (("observe", "worker"), ("worker", "observe"))
"""Who must not know whom, whatever their floors: what shows a crawl reads the events of what carries it out."""


def sources(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    return names


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {dotted(path): path for package in ABOVE for path in sources(package)}


@cache
def modules_imported(path: Path) -> set[str]:
    """Those of ours, wherever in the file they are imported: at its top, in a function, or for the type checker."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names = {f"{node.module}.{alias.name}" for alias in node.names} - {"crawler.__version__"}
            found |= names & MODULES.keys()
            if names - MODULES.keys():
                found.add(node.module or "")
    return found & MODULES.keys()


def room(module: str) -> str:
    """The room that `module` is in."""
    top, *inner = module.split(".")
    if top != "crawler":
        return top
    if inner and (inner[0] == "__main__" or (ROOT / "crawler" / inner[0]).is_dir()):
        return inner[0]
    return "crawler" if inner else "api"


def arrows() -> dict[str, set[str]]:
    """Room -> the other rooms that its modules import."""
    found: dict[str, set[str]] = {name: set() for name in map(room, MODULES)}
    for module, path in MODULES.items():
        found[room(module)] |= {room(one) for one in modules_imported(path)} - {room(module)}
    return found


@pytest.mark.parametrize("package", ABOVE)
def test_nothing_imports_upwards(package: str) -> None:
    breaches = {str(path): imported(path) & ABOVE[package] for path in sources(package)}
    assert {path: names for path, names in breaches.items() if names} == {}


def test_every_module_of_the_crawler_is_in_a_room_or_shared_by_all() -> None:
    assert {path.stem for path in (ROOT / "crawler").glob("*.py")} == SHARED | {"__init__", "__main__"}
    assert {room(module) for module in MODULES} == set().union(*FLOORS)


def test_rooms_import_what_the_table_allows_and_the_table_allows_no_more() -> None:
    assert arrows() == ALLOWED


def test_the_table_leads_down() -> None:
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    upward = {(one, other) for one, others in ALLOWED.items() for other in others if floor[one] >= floor[other]}
    assert upward == set()
    assert [(one, other) for one, other in STRANGERS if other in ALLOWED[one]] == []


ROOMS_WITH_A_LIST = sorted(ALLOWED.keys() - {"__main__", "api", "crawler", "politeness", "frontier", "simweb"})


@pytest.mark.parametrize("name", ROOMS_WITH_A_LIST)
def test_the_docstring_of_a_room_lists_what_other_rooms_import_from_it(name: str) -> None:
    above = [path for module, path in MODULES.items() if room(module) != name]
    taken = {module for path in above for module in modules_imported(path) if room(module) == name}
    listed = re.search(
        r"Other\s+rooms\s+import:\s+([^.]*)\.",
        ast.get_docstring(ast.parse(MODULES[f"crawler.{name}"].read_text())) or "",
    )
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == {module.split(".")[2] for module in taken if module.count(".") > 1}


ROOM_FOLDERS = sorted({path.parent for path in MODULES.values()} - {ROOT / "crawler"})


@pytest.mark.parametrize("folder", ROOM_FOLDERS, ids=lambda folder: str(folder.relative_to(ROOT)))
def test_the_docstring_of_a_room_says_what_each_of_its_modules_is_for(folder: Path) -> None:
    """The list of what other rooms import does not count."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    described = re.split(r"Other\s+rooms\s+import:", docstring)[0]
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    assert modules - set(re.findall(r"`(\w+)`", described)) == set()


def test_only_the_command_line_knows_the_synthetic_web() -> None:
    assert [one for one, others in ALLOWED.items() if "simweb" in others] == ["cli"]


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {module: modules_imported(path) - {module} for module, path in MODULES.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_only_the_parts_of_the_store_know_redis() -> None:
    """Its URLs have the options of redis-py."""
    knowing = [path.name for package in ABOVE for path in sources(package) if "redis" in imported(path)]
    assert knowing == ["redis_options.py"]


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
