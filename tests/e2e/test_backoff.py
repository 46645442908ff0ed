"""Retry-After is respected even if all replicas and the store are killed with SIGKILL."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import redis

from frontier.domains import shard_of
from frontier.keys import CrawlKeys
from politeness.backoff import BackoffState
from tests.e2e.harness import EVEN, Web, bench, wait_until
from tests.simweb.features import Kind
from tests.simweb.judge import TooClose
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

REST_S = 5
"""Longer than replicas need to restart, so that a replica that forgot the backoff would violate it."""

BUSY = replace(EVEN, answers={Kind.BUSY: 0.05}, retry_after_s=REST_S)

SHARDS = 64


class Kill(NamedTuple):
    """When all replicas had been killed, and the domains whose backoff was in the store then."""

    at: float
    resting: frozenset[str]

    def explains(self, early: TooClose) -> bool:
        """Whether a replica was killed between the response and its record in the store."""
        return early.first.end < self.at < early.second.start and early.first.domain not in self.resting


@pytest.mark.long
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
        kills = []
        for _ in range(2):
            replicas = [crawler.start("run", "--until-empty") for _ in range(2)]
            # In mid-crawl, when most of a site's backoff is left,
            web.wait_for(web.requests + 30)
            wait_until(lambda: resting(server, web, at_least_s=REST_S / 2), "a site at the beginning of its rest")
            for replica in replicas:
                replica.kill()
            kills.append(Kill(time.monotonic(), resting(server, web)))
            server.kill()
            server.start()
        last = crawler.start("run", "--until-empty").wait()
        assert last.code == 0, last.err
        result = web.verdict(repeats=300, delay_s=0.2)
        assert [early for early in result.unrested if not any(kill.explains(early) for kill in kills)] == []
        assert result.too_close == []
        assert result.overlaps == []
        assert result.missing == []


def resting(server: ValkeyProcess, web: Web, at_least_s: float = 0.0) -> frozenset[str]:
    """The domains that rest for `at_least_s` seconds more, as the store has it."""
    shards = CrawlKeys("crawl", SHARDS).shards
    names = [urlsplit(url).netloc for url in web.world.seeds()]
    with redis.Redis(unix_socket_path=str(server.socket)) as store:
        until_ms = 1000 * (time.time() + at_least_s)
        states = [store.hget(shards[shard_of(name, SHARDS)].domain(name), "state") or b"" for name in names]
    return frozenset(
        name
        for name, state in zip(names, states, strict=True)
        if BackoffState.parse(state.decode()).until_ms > until_ms
    )
