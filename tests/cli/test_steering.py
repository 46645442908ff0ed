"""What an operator says to a crawl is heeded by its replicas: judged by the log of the web that they crawl."""

from __future__ import annotations

import json
import urllib.request
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from tests.deploy.test_prometheus import address
from tests.e2e.harness import Web, bench, wait_until
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

SLOW_S = 0.5


def test_blocked_domains_get_no_request_and_slowed_ones_rest(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=6, pages=36, features="plain") as web,
        bench(tmp_path, web, valkey.url) as commands,
    ):
        assert commands.run("seed", "-f", str(commands.seeds)).code == 0
        blocked, slowed = "d00000.test", "d00001.test"
        assert commands.run("block", blocked).code == 0
        assert commands.run("delay", slowed, str(SLOW_S)).code == 0
        done = commands.run("run", "--until-empty")
        assert done.code == 0, done.err
        books = commands.status()
        records = web.records()
    assert books["open"] == 0
    assert books["reasons"]["denied:blocked"] > 0
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        spans[record.domain].append((record.start, record.end))
    assert blocked not in spans
    assert len(spans) == 5
    slow = sorted(spans[slowed])
    assert min(after[0] - before[1] for before, after in pairwise(slow)) >= SLOW_S


def test_a_paused_crawl_makes_no_request_and_goes_on(tmp_path: Path) -> None:
    with (
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        Web(tmp_path, domains=8, pages=60, features="plain") as web,
        bench(tmp_path, web, valkey.url, {"politeness": {"delay": 0.2}}) as commands,
    ):
        assert commands.run("seed", "-f", str(commands.seeds)).code == 0
        replica = commands.start("run", "--until-empty", "--listen", "127.0.0.1:0")
        web.wait_for(12)
        assert commands.run("pause").code == 0

        def visits() -> int:
            with urllib.request.urlopen(f"http://{address(replica)}/snapshot") as page:
                return int(sum(one["visits"] for one in json.load(page)["replicas"]))

        wait_until(lambda: visits() == 0, "all domains given back")
        settled = commands.status()["done"]
        assert commands.run("status").code == 0  # half a second later
        assert commands.status()["done"] == settled
        assert replica.is_running
        assert commands.run("resume").code == 0
        assert replica.wait().code == 0
        assert commands.status()["open"] == 0
        assert commands.status()["done"] > settled
