"""Each oddity by itself: what three other programs read of it, this crawler reads."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.fuzz.differential import PEERS, compare

pytestmark = [pytest.mark.e2e, pytest.mark.long]

if not (PEERS.exists() and shutil.which("curl") and shutil.which("wget") and shutil.which("chromium")):
    if os.environ.get("CI"):
        raise RuntimeError("CI must install curl, wget, chromium and the other programs; see .ci/run")
    pytest.skip("needs curl, wget, chromium and other programs in Python", allow_module_level=True)


def test_what_three_others_read_is_read() -> None:
    found = compare(0, seed=1)
    assert not found, "\n".join(map(str, found))


def test_a_response_that_is_lost_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine notices a crawler that reads nothing."""
    monkeypatch.setattr("tests.fuzz.differential.by_crawler", lambda *_: set())
    (sound,) = compare(0, seed=1, only="field: no space")
    assert {"curl", "wget", "requests", "httpx", "Scrapy", "Chromium"} == set(sound.readers)
