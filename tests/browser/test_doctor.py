"""`crawler doctor` renders a page, and says what keeps the browser in; and what does so in a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.browser.process import find_browser, find_isolation
from crawler.cli.doctor import browser
from crawler.errors import BrowserFailed
from crawler.settings.load import Settings

REPOSITORY = Path(__file__).parents[2]
WANTED = replace(Settings(), render=replace(Settings().render, mode="always"))

try:
    find_browser()
except BrowserFailed:
    pytest.skip("needs Debian's chromium-headless-shell", allow_module_level=True)


async def test_it_finds_the_browser_and_its_isolation() -> None:
    found = {finding.check: finding for finding in await browser(WANTED)}
    assert found["browser"].result == "good" and "renders a page" in found["browser"].found
    if find_isolation().kind == "namespace":
        assert found["its isolation"].found.startswith("by the kernel")


async def test_it_doubts_flags_and_condemns_a_browser_that_does_not_start() -> None:
    flags = replace(WANTED, replica=replace(WANTED.replica, browser_isolation="flags"))
    found = {finding.check: finding for finding in await browser(flags)}
    assert found["its isolation"].result == "doubtful" and "flags only" in found["its isolation"].found
    broken = replace(WANTED, replica=replace(WANTED.replica, browser="/bin/false"))
    first, *_ = await browser(broken)
    assert first.result == "bad" and "does not start" in first.found
    absent = replace(Settings(), replica=replace(WANTED.replica, browser="/no/such/file"))
    (only,) = await browser(absent)
    assert only.result == "good"  # none is wanted


def in_container(profile: Path, folder: str) -> list[str]:
    """What a browser has and does under `profile`, for a user without privileges as in the image."""
    command = [sys.executable, "-m", "tests.browser.contained", str(profile)]
    user: dict[str, Any] = {"user": 10001, "group": 10001, "extra_groups": []} if os.geteuid() == 0 else {}
    environment = {**os.environ, "TMPDIR": folder, "HOME": folder, "PYTHONDONTWRITEBYTECODE": "1"}
    options: dict[str, Any] = {"capture_output": True, "text": True, "cwd": REPOSITORY, "env": environment, **user}
    try:
        done = subprocess.run(command, check=False, **options)
    except PermissionError:
        pytest.skip("needs files that others may read")
    if "libseccomp.so.2: cannot open" in done.stderr:
        pytest.skip("needs libseccomp")
    return done.stdout.split() or [done.stderr]


@pytest.mark.long
@pytest.mark.timed
def test_the_profile_for_containers_leaves_a_browser_its_fences() -> None:
    """With Docker's own one, it has neither namespaces nor its sandbox, and renders all the same."""
    if find_isolation().kind != "namespace":
        pytest.skip("this machine allows no network namespace")
    path = REPOSITORY / "deploy/chromium-seccomp.json"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        assert in_container(path, folder) == ["namespace", "True", "done"]
        profile = json.loads(path.read_text())
        profile["syscalls"][-1] = {"names": ["chroot"], "action": "SCMP_ACT_ALLOW"}
        no_namespaces = {"index": 0, "value": 0x7E020000, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}
        profile["syscalls"].append({"names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": [no_namespaces]})
        (docker := Path(folder, "docker.json")).write_text(json.dumps(profile))
        assert in_container(docker, folder) == ["flags", "False", "done"]
