"""The packages that the image and CI install: exact versions with hashes, as `pyproject.toml` allows them."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "deploy" / "lock"
PACKAGES = ("crawler", "frontier", "politeness")
FILES = sorted(LOCK.glob("*.txt"))
PINNED = re.compile(r"^(\S+)==(\S+)(?: ; [^\\]+)?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE)

PRIVATE = {
    "crawler/fetch/library_privates.py": "python",
    "crawler/fetch/connection.py": "aiohttp",
    "crawler/parse/tags.py": "pcre2",
}
"""Files that use private names of a library -> its name in `pyproject.toml`."""


def project() -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return found


def required(extra: str = "") -> list[Requirement]:
    """What the project requires, with an extra and those that it includes."""
    table = project()["project"]
    lines = list(table["dependencies"])
    extras = [extra] if extra else []
    for name in extras:
        for line in table["optional-dependencies"][name]:
            one = Requirement(line)
            extras += one.extras if one.name == "peercrawl" else []
            lines += [line] if one.name != "peercrawl" else []
    return [Requirement(line) for line in lines]


def pins(name: str) -> dict[str, str]:
    return {canonicalize_name(package): version for package, version, _ in PINNED.findall((LOCK / name).read_text())}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_package_has_a_version_and_hashes(file: Path) -> None:
    text = re.sub(r"^ *#.*\n", "", file.read_text(), flags=re.MULTILINE)
    assert PINNED.sub("", text).split() == []


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("runtime.txt", "identity"),
        ("runtime.txt", "parquet"),
        ("runtime.txt", "postgres"),
        ("runtime.txt", "socks"),
        ("runtime.txt", "upload"),
        ("dev.txt", "dev"),
    ],
)
def test_the_lock_keeps_to_the_project(name: str, extra: str) -> None:
    """After a change of `pyproject.toml`: make lock."""
    found = pins(name)
    for one in required(extra):
        assert one.specifier.contains(found[canonicalize_name(one.name)], prereleases=True), one


def test_what_builds_the_package_is_locked() -> None:
    (builder,) = map(Requirement, project()["build-system"]["requires"])
    for name in ("build.txt", "dev.txt"):
        assert builder.specifier.contains(pins(name)[builder.name])


def test_everything_is_installed_by_hash() -> None:
    for file in ("Makefile", ".ci/run"):
        installs = re.findall(r"pip install (.*)", (ROOT / file).read_text())
        assert installs, file
        for words in installs:
            assert "--require-hashes --requirement deploy/lock/" in words or "--no-deps --no-build-isolation" in words


def private_names(path: Path) -> set[str]:
    """Private names of others that a module uses."""
    tree = ast.parse(path.read_text())
    nodes = list(ast.walk(tree))
    own = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    own |= {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    used: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute):
            mine = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            own |= {node.attr} if mine else set()
            used |= set() if mine else {node.attr}
        elif isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names} | set((node.module or "").split("."))
        elif isinstance(node, ast.Import):
            used |= {part for alias in node.names for part in alias.name.split(".")}
    public = {"_replace", "_asdict", "_exit"}  # of named tuples and of `os`
    return {name for name in used - own - public if re.match(r"_[^_]", name)}


def inherited_private_names(path: Path) -> set[str]:
    """Private names of foreign base classes that the classes of a module override or use."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        made = getattr(module, node.name, None) if isinstance(node, ast.ClassDef) else None
        for base in made.__mro__ if isinstance(made, type) else ():
            if base.__module__.partition(".")[0] not in (*PACKAGES, "builtins"):
                code = getattr(base.__init__, "__code__", None)
                theirs = {*vars(base), *(code.co_names if code else ())}
                found |= {name for name in theirs & names_in(node) if re.match(r"_[^_]", name)}
    return found


def names_in(made: ast.AST) -> set[str]:
    """The methods of a class, and all attributes that they use."""
    nodes = list(ast.walk(made))
    functions = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    return functions | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_private_parts_of_libraries_have_an_upper_bound() -> None:
    """A release may change what is private, and nothing would say so."""
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if path.stem != "__main__"]
    using = {str(path.relative_to(ROOT)) for path in modules if private_names(path) or inherited_private_names(path)}
    assert using == PRIVATE.keys()
    bounds = {one.name: one.specifier for one in required()}
    bounds["python"] = SpecifierSet(project()["project"]["requires-python"])
    for library in PRIVATE.values():
        assert any(one.operator in ("<", "==", "~=") for one in bounds[library]), library
