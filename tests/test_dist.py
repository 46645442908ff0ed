"""`make dist` accepts what is built here and names what is wrong; the workflows test, build and publish."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import dist

ROOT = Path(__file__).parent.parent
WORKFLOWS = ROOT / ".github" / "workflows"
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Files, Files]:
    """The contents of the sdist and of the wheel that is built from it."""
    sdist, wheel = dist.build(tmp_path_factory.mktemp("dist"))
    assert dist.version(wheel) == wheel.name.split("-")[1]
    return dist.contents(sdist), dist.contents(wheel)


@pytest.fixture(scope="module")
def wanted(built: tuple[Files, Files]) -> set[str]:
    """The files of the repository; of an unpacked sdist, which has no git, its own."""
    if not (ROOT / ".git").exists():
        return {name for name in built[0] if name != "PKG-INFO"}
    others = ["git", "ls-files", "-z", "--others", "--exclude-standard"]
    not_yet_added = subprocess.run(others, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return dist.tracked() | {name for name in not_yet_added.split("\0") if name}


def test_the_sdist_and_the_wheel_are_complete(built: tuple[Files, Files], wanted: set[str]) -> None:
    sdist, wheel = built
    assert dist.sdist_faults(sdist, wanted) == []
    assert dist.wheel_faults(wheel, wanted) == []
    assert "frontier/lua/claim.lua" in wheel
    assert ".github/workflows/test.yml" in sdist, "its tests read them"


def test_what_is_missing_or_too_much_is_named(built: tuple[Files, Files], wanted: set[str]) -> None:
    sdist, wheel = built
    assert dist.sdist_faults({**sdist, "deploy/.env": b""}, wanted) == ["not in the repository: deploy/.env"]
    without = {name: data for name, data in wheel.items() if not name.endswith(("claim.lua", "entry_points.txt"))}
    assert dist.wheel_faults(without, wanted) == ["missing: frontier/lua/claim.lua", "no command `crawler`"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda text: text.replace(b"Name: peercrawl\n", b""), "'name' is a required field"),
        (lambda text: text.replace(b":: Python :: 3.14", b":: Python :: 3.99"), "unknown classifier"),
        (lambda text: text.replace(b"<3.15,", b"<3.14,"), "requires-python"),
        (lambda text: text.replace(b"text/markdown", b"text/plain"), "not the README"),
        (lambda text: text.replace(b"License-Expression: Apache-2.0\n", b""), "no license"),
    ],
)
def test_metadata_that_an_index_refuses_is_named(
    built: tuple[Files, Files], change: Callable[[bytes], bytes], fault: str
) -> None:
    changed = change(built[0]["PKG-INFO"])
    assert changed != built[0]["PKG-INFO"]
    assert any(fault in one for one in dist.metadata_faults(changed)), dist.metadata_faults(changed)


def workflow(name: str) -> dict[str, Any]:
    read: dict[Any, Any] = yaml.safe_load((WORKFLOWS / f"{name}.yml").read_text())
    return {"on" if key is True else key: value for key, value in read.items()}  # YAML 1.1 takes `on` for true


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


@pytest.mark.parametrize("path", sorted(WORKFLOWS.iterdir()), ids=lambda path: path.name)
def test_a_workflow_is_valid_and_may_do_little(path: Path) -> None:
    """The schema is GitHub's, in the package. Actions are named by commit, because a tag can be moved to other code."""
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    actions = re.findall(r"uses: (?!\./)(.*)", path.read_text())
    assert [one for one in actions if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v[\d.]+", one)] == []
    assert workflow(path.stem)["permissions"] == {"contents": "read"}
    assert "secrets." not in path.read_text()
    assert all("timeout-minutes" in job or "uses" in job for job in workflow(path.stem)["jobs"].values())


def test_every_change_is_tested_on_every_python() -> None:
    found = workflow("test")
    assert {"push", "pull_request"} <= found["on"].keys()
    job = found["jobs"]["test"]
    assert tuple(job["strategy"]["matrix"]["python"]) == dist.PYTHONS
    assert job["container"] == "python:${{ matrix.python }}-bookworm"
    assert commands(job)[-1] == ".ci/run"
    assert job["env"]["PYTHON"] == "/usr/local/bin/python3"
    assert "for candidate in ${PYTHON:-} " in (ROOT / ".ci" / "run").read_text()


def test_a_tag_is_tested_checked_and_published_without_a_password() -> None:
    found = workflow("release")
    assert found["on"] == {"push": {"tags": ["v*"]}}
    jobs = found["jobs"]
    assert jobs["test"]["uses"] == "./.github/workflows/test.yml"
    assert "workflow_call" in workflow("test")["on"]
    assert (jobs["build"]["needs"], jobs["publish"]["needs"]) == ("test", "build")
    assert 'TAG="$GITHUB_REF_NAME" dist' in commands(jobs["build"])[-1]
    # Only the job that publishes has the identity, and it runs no code of the repository.
    assert [name for name, job in jobs.items() if "permissions" in job] == ["publish"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"] == "pypi"
    assert [step["uses"].partition("@")[0] for step in jobs["publish"]["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
