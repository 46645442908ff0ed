"""The page limit causes no delay while it is far away, and is reached exactly even if replicas are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, Tables, Web, bench
from tests.e2e.victims import kill, replicas_under
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

AT_FULL_SPEED: Tables = {"politeness": {"delay": 0}}


@pytest.mark.parametrize("replicas", [3, 8])
def test_replicas_without_a_delay_meet_the_limit_together(tmp_path: Path, replicas: int) -> None:
    """The number of settled pages, archived pages and requests equals the limit exactly."""
    with (
        Web(tmp_path, domains=32, pages=1_600, features=EVEN) as web,
        bench(tmp_path, web, tables=AT_FULL_SPEED) as crawler,
    ):
        crawler.configure({"limits": {"max_pages": 400}})
        done = crawler.supervise(replicas).wait()
        assert done.code == 0, done.err
        assert crawler.status()["done"] == 400
        assert sum(line["outcome"] == "done" for line in crawler.lines()) == 400
        assert sum(record.path != "/robots.txt" for record in web.records()) == 400


@pytest.mark.long
def test_the_limit_is_met_exactly_when_replicas_are_killed(tmp_path: Path) -> None:
    """Given three replicas of which two are killed during the crawl, then the remaining one and the replacements started by
    the supervisor settle and archive exactly the limit. Permits of dead replicas are recovered, and none is used twice.
    The web served at most the pages in flight at the kills in addition."""
    (tmp_path / "valkey").mkdir()
    tables: Tables = {"politeness": {"delay": 0.2}, "frontier": {"lease": 2.0}, "limits": {"max_pages": 300}}
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        Web(tmp_path, domains=16, pages=1_600, features=EVEN) as web,
        bench(tmp_path, web, valkey.url, tables) as crawler,
    ):
        web.stop_at(80)
        supervisor = crawler.supervise(3)
        with web.stopped():
            kill(replicas_under(supervisor, 3)[0])
            web.stop_at(160)
        with web.stopped():
            kill(replicas_under(supervisor, 3)[0])
        done = supervisor.wait()
        assert done.code == 0, done.err
        assert crawler.status()["done"] == 300
        urls = Counter(line["url"] for line in crawler.lines() if line["outcome"] == "done")
        assert urls.total() == len(urls) == 300
        served = sum(record.path != "/robots.txt" for record in web.records())
        assert 300 <= served < 400
