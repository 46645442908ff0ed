"""Replicas apply an operator's commands, as shown by the request log of the web that they crawl."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from tests.deploy.test_prometheus import has_given_back
from tests.e2e.harness import EVEN, Web, bench, wait_until
from tests.simweb.features import RobotsKind
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

SLOW_S = 0.5


def test_blocked_domains_get_no_request_and_slowed_ones_keep_their_delay(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=6, pages=36, features=EVEN) as web,
        bench(tmp_path, web, valkey.url) as commands,
    ):
        commands.seed()
        blocked, slowed = "d00000.test", "d00001.test"
        commands.type("block", blocked)
        commands.type("delay", slowed, str(SLOW_S))
        done = commands.run("run", "--until-empty")
        assert done.code == 0, done.err
        status = commands.status()
        records = web.records()
    assert status["open"] == 0
    assert status["reasons"]["denied:blocked"] > 0
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        spans[record.domain].append((record.start, record.end))
    assert blocked not in spans
    assert len(spans) == 5
    slow = sorted(spans[slowed])
    assert min(after[0] - before[1] for before, after in pairwise(slow)) >= SLOW_S


def test_robots_txt_redirects_to_a_blocked_domain_are_not_followed(tmp_path: Path) -> None:
    """Given hosts whose robots.txt redirects to one domain, when that is blocked, then it gets no request, and no page is
    fetched, because the file is unreachable (RFC 9309 2.3.1.4)."""
    features = replace(EVEN, robots={RobotsKind.SHARED: 1.0})
    tables = {"politeness": {"backoff_base": 0.05, "tries": 2}}
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=4, pages=12, features=features) as web,
        bench(tmp_path, web, valkey.url, tables) as commands,
    ):
        commands.seed()
        commands.type("block", "rules.test")
        done = commands.run("run", "--until-empty")
        assert done.code == 0, done.err
        status = commands.status()
        asked = {record.url for record in web.records()}
    assert status["open"] == 0
    assert status["reasons"]["dead:robots_unreachable"] == 4
    assert len(asked) == 4
    assert all(url.endswith("/robots.txt") and "rules.test" not in url for url in asked)


def test_a_paused_crawl_makes_no_request_until_it_is_resumed(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=8, pages=8_000, features=EVEN) as web,  # never over here
        bench(tmp_path, web, valkey.url, {"politeness": {"delay": 0.2}}) as commands,
    ):
        commands.seed()
        replica = commands.start("run", "--until-empty", "--listen", "127.0.0.1:0")
        web.wait_for(12)
        assert commands.run("pause").code == 0
        assert replica.is_running
        wait_until(lambda: has_given_back(replica), "all domains given back", step_s=0.1)
        settled = commands.status()["done"]
        assert commands.run("status").code == 0  # a second, or five delays, later
        assert commands.status()["done"] == settled
        assert replica.is_running
        assert commands.run("resume").code == 0
        wait_until(lambda: commands.status()["done"] > settled, "the crawl to go on", step_s=0.1)
