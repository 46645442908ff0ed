"""Fixtures: a real Valkey server for the whole run, and an empty crawl on it for each test."""

from __future__ import annotations

import gc
import itertools
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from frontier.store import RedisStore, connect
from tests.typed import Typed
from tests.valkey import ValkeyProcess

_numbers = itertools.count(1)

settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")  # on a busy machine, an example that takes long shows nothing


def pytest_collection_finish() -> None:
    """The garbage collector looks no more at the thousands of tests, in no test whose CPU time is measured either."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Objects that are frozen at the exit are not freed, which C libraries report as leaks."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def named_sitemaps_only(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests count requests, so there are none for sitemaps that nobody names, unless a test is about settings."""
    if request.path.stem not in ("test_config", "test_load", "test_crawl_settings", "test_requests"):
        monkeypatch.setenv("CRAWLER_SCOPE__GUESS_SITEMAPS", "false")


@pytest.fixture(scope="session")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """A Valkey server on a Unix socket, without persistence."""
    with ValkeyProcess(tmp_path_factory.mktemp("valkey"), persistent=False) as server:
        yield server


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[RedisStore]:
    """A store on the bundled server, or on the one that PEERCRAWL_TEST_REDIS names (tests/frontier/test_servers.py)."""
    url = os.environ.get("PEERCRAWL_TEST_REDIS") or request.getfixturevalue("valkey").url
    store = await connect(url)
    yield store
    await store.close()


@pytest.fixture
def crawl_name() -> str:
    """A name that no other test of this run has used."""
    return f"test{next(_numbers)}"


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Typed:
    """Types commands in the test's folder."""
    return Typed(tmp_path, monkeypatch, capfd)
