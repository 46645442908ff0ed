"""Retry-After is respected even if all replicas and the store are killed with SIGKILL."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from crawler.simweb import Record, read_log
from crawler.simweb.features import Kind
from tests.e2e.harness import EVEN, Running, Web, bench, wait_until
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

REST_S = 5
"""Longer than replicas need to restart, so that a replica that forgot the backoff would violate it."""

HEARD_S = 1
"""Seconds after which a replica has saved a response in the store. Later ones may be lost when it is killed."""

BUSY = replace(EVEN, answers={Kind.BUSY: 0.05}, retry_after_s=REST_S)


def test_backoff_survives_the_death_of_all_replicas_and_of_the_store(tmp_path: Path) -> None:
    """Given sites that responded with 429 or 503 and Retry-After, when all replicas and the store (append-only file, synced
    at every write) are killed during the crawl and restarted, then no site is requested before its backoff is over."""
    (tmp_path / "valkey").mkdir()
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=True) as server,
        Web(tmp_path, domains=16, pages=320, features=BUSY) as web,
        bench(tmp_path, web, server.url, {"politeness": {"delay": 0.2}, "frontier": {"lease": 2.0}}) as crawler,
    ):
        crawler.seed()
        outages = []
        for _ in range(2):
            killed_at = kill_in_mid_crawl(web, [crawler.start("run", "--until-empty") for _ in range(2)])
            server.kill()
            server.start()
            outages.append((killed_at - HEARD_S, time.monotonic()))
        last = crawler.start("run", "--until-empty").wait()
        assert last.code == 0, last.err
        result = web.verdict(repeats=300, delay_s=0.2)
        assert [early for early in result.unrested if was_heard(early.first, outages)] == []
        assert result.too_close == []
        assert result.overlaps == []
        assert result.missing == []


def kill_in_mid_crawl(web: Web, replicas: list[Running]) -> float:
    """Kill all `replicas` after some requests, in the middle of a site's backoff. Returns the time."""
    web.wait_for(web.requests + 30)
    wait_until(lambda: any(map(in_mid_rest, read_log(web.log))), "a site in the middle of its rest")
    killed_at = time.monotonic()
    for replica in replicas:
        replica.kill()
    return killed_at


def in_mid_rest(record: Record) -> bool:
    return record.retry_after is not None and HEARD_S < time.monotonic() - record.end < REST_S / 2


def was_heard(record: Record, outages: list[tuple[float, float]]) -> bool:
    """Whether the response was certainly saved before the kill. All processes share one clock."""
    return not any(began < record.end < ended for began, ended in outages)
