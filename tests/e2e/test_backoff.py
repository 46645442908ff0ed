"""A domain that asked for rest is left alone through a kill -9 of every replica and of the store."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from crawler.simweb import Policy
from tests.e2e.harness import TRIES, Web, bench, replicas_under, wait_until
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e


def test_backoff_survives_the_death_of_all_replicas_and_of_the_store(tmp_path: Path) -> None:
    """Given sites that answered 429 or 503 with a Retry-After, when all replicas and the store (append-only file, synced
    at every write) are killed in mid-crawl and started again, then nobody is asked before its rest is over."""
    data = tmp_path / "valkey"
    data.mkdir()
    with (
        ValkeyProcess(data, persistent=True) as server,
        Web(tmp_path, domains=24, pages=320) as web,
        bench(tmp_path, web, server.url) as crawler,
    ):
        for _ in range(3):
            before = web.requests
            running = crawler.crawl("--replicas", "2")
            replicas = replicas_under(running, 2)
            web.wait_for(before + 60)
            wait_until(lambda: resting(web), "a site that asks for rest")
            running.kill()
            for pid in replicas:
                os.kill(pid, signal.SIGKILL)
            server.kill()
            server.start()
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        verdict = web.verdict(Policy(tries=TRIES), repeats=300)
        assert verdict.unrested == []
        assert verdict.too_close == []
        assert verdict.overlaps == []
        assert verdict.missing == []


def resting(web: Web) -> bool:
    """Whether some answer so far asked for rest."""
    return b'"retry_after":1' in web.log.read_bytes()
