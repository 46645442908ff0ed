"""The packages that the image and CI install: exact versions with hashes, as `pyproject.toml` allows them."""

from __future__ import annotations

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


def test_private_parts_of_libraries_have_an_upper_bound() -> None:
    """A release may change what is private, and nothing would say so."""
    assert all((ROOT / path).exists() for path in PRIVATE)
    bounds = {one.name: one.specifier for one in required()}
    bounds["python"] = SpecifierSet(project()["project"]["requires-python"])
    for library in PRIVATE.values():
        assert any(one.operator in ("<", "==", "~=") for one in bounds[library]), library
