"""A domain that asked for rest is left alone through a kill -9 of every replica and of the store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawler.simweb.features import Kind
from tests.e2e.harness import EVEN, Running, Web, bench, wait_until
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

REST_S = 5
"""More than replicas need to start again: whoever forgot the rest would disturb it."""

RESTING = b'"retry_after":%d' % REST_S
"""In the log of the web."""

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
        for _ in range(2):
            kill_in_mid_crawl(web, [crawler.start("run", "--until-empty") for _ in range(2)])
            server.kill()
            server.start()
        last = crawler.start("run", "--until-empty").wait()
        assert last.code == 0, last.err
        verdict = web.verdict(repeats=300, delay_s=0.2)
        assert verdict.unrested == []
        assert verdict.too_close == []
        assert verdict.overlaps == []
        assert verdict.missing == []


def kill_in_mid_crawl(web: Web, replicas: list[Running]) -> None:
    """Kill all `replicas` when they have made some requests and a site has asked for rest."""
    before = web.requests
    web.wait_for(before + 30)
    wait_until(lambda: RESTING in web.log.read_bytes(), "a site that asks for rest")
    for replica in replicas:
        replica.kill()
