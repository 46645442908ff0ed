"""A kill at the critical time: after a page is archived and before it is settled. A slow archive keeps a replica in this
state."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from tests.e2e.harness import EVEN, ROOT, Bench, Running, Tables, Web, bench, wait_until
from tests.e2e.slow_archive import SlowArchive
from tests.killing import find
from tests.throttled_sink import throttle

pytestmark = [pytest.mark.e2e, pytest.mark.long]

TABLES: Tables = {
    "frontier": {"lease": 1.5},
    "archive": {"sinks": [f"{SlowArchive.__module__}:{SlowArchive.__name__}"], "parquet": True},
}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, domains=8, pages=80, features=EVEN) as web:
        yield web


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    with bench(tmp_path, web, tables=TABLES, has_server=True) as crawler:
        crawler.seed()
        crawler.out.mkdir()
        yield crawler


def start(crawler: Bench) -> Running:
    return crawler.start("run", "--until-empty", environment={"PYTHONPATH": str(ROOT)})


def start_held(crawler: Bench, seconds_a_page: float) -> Running:
    """A replica whose first rows are in the archive, and not settled yet for `seconds_a_page`."""
    throttle(crawler.out, seconds_a_page)
    before = set(crawler.out.iterdir())
    replica = start(crawler)

    def has_written() -> bool:
        return any(path.stat().st_size for path in set(crawler.out.glob("*.pages.jsonl.open")) - before)

    wait_until(has_written, "a row")
    return replica


def check(crawler: Bench, web: Web, kills: int) -> None:
    """Every URL is in the archive exactly once, by every query."""
    expected = web.expected.urls | web.expected.denied
    findings = find(crawler.out, expected, kills)
    assert findings.ok, str(findings)
    assert not list(crawler.out.glob("*.open"))
    tables = [pq.read_table(path, columns=["url"]) for path in crawler.out.glob("*.pages.parquet")]
    urls = [url for table in tables for url in table["url"].to_pylist()]
    assert sorted(urls) == sorted(expected)


def test_pages_that_a_dead_replica_had_not_settled_are_taken_back(crawler: Bench, web: Web) -> None:
    for _ in range(2):
        start_held(crawler, 1_000).kill()
    throttle(crawler.out, 0)
    done = start(crawler).wait()
    assert done.code == 0, done.err
    assert "pages_taken_back" in done.err
    check(crawler, web, kills=2)


def test_pages_that_others_fetched_meanwhile_are_taken_back_after_that(
    crawler: Bench, web: Web, tmp_path: Path
) -> None:
    """The dead replica's volume, on another machine, is found long after its URLs were fetched again."""
    start_held(crawler, 1_000).kill()
    away = tmp_path / "away"
    crawler.out.rename(away)
    assert start(crawler).wait().code == 0
    for path in away.glob("*.open"):
        path.rename(crawler.out / path.name)
    assert start(crawler).wait().code == 0
    check(crawler, web, kills=1)


def test_a_replica_that_slept_longer_than_its_leases_takes_its_pages_back(crawler: Bench, web: Web) -> None:
    sleeper = start_held(crawler, 0.5)
    sleeper.send(signal.SIGSTOP)
    throttle(crawler.out, 0)
    other = start(crawler)
    expected = len(web.expected.urls | web.expected.denied)
    wait_until(lambda: crawler.status()["done"] + crawler.status()["denied"] >= expected, "the other to do it all")
    sleeper.send(signal.SIGCONT)
    assert sleeper.wait().code == other.wait().code == 0
    check(crawler, web, kills=0)
