"""The short form of `python -m tests.killing`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.killing import crawl_and_kill

pytestmark = pytest.mark.e2e


def test_what_was_settled_is_in_the_archive_whenever_replicas_are_killed(tmp_path: Path) -> None:
    findings = crawl_and_kill(tmp_path, kills=5, seed=1)
    assert findings.kills == 5
    assert findings.ok, str(findings)
