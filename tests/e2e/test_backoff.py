"""A domain that asked for rest is left alone through a kill -9 of every replica and of the store."""

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
"""More than replicas need to start again: whoever forgot the rest would disturb it."""

HEARD_S = 1
"""When an answer is so old, its replica has told the store. What comes right before a kill, nobody ever heard."""

BUSY = replace(EVEN, answers={Kind.BUSY: 0.05}, retry_after_s=REST_S)


def test_backoff_survives_the_death_of_all_replicas_and_of_the_store(tmp_path: Path) -> None:
    """Given sites that answered 429 or 503 with a Retry-After, when all replicas and the store (append-only file, synced
    at every write) are killed in mid-crawl and started again, then nobody is asked before its rest is over."""
    (tmp_path / "valkey").mkdir()
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=True) as server,
        Web(tmp_path, domains=16, pages=160, features=BUSY) as web,
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
    """Kill all `replicas` when they have made some requests and a site is in the middle of its rest: at what time."""
    web.wait_for(web.requests + 30)
    wait_until(lambda: any(map(in_mid_rest, read_log(web.log))), "a site in the middle of its rest")
    killed_at = time.monotonic()
    for replica in replicas:
        replica.kill()
    return killed_at


def in_mid_rest(record: Record) -> bool:
    return record.retry_after is not None and HEARD_S < time.monotonic() - record.end < REST_S / 2


def was_heard(record: Record, outages: list[tuple[float, float]]) -> bool:
    """Whether the answer cannot have been lost with a replica. The clocks of all processes are one."""
    return not any(began < record.end < ended for began, ended in outages)
