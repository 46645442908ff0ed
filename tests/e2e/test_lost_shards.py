"""Redis comes back without the data of some shards, or of all: nobody takes that for the end, and it can be repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.e2e.harness import EVEN, Tables, Web, bench, repeated
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

DELAY_S = 0.3
PACE: Tables = {"politeness": {"delay": DELAY_S}, "frontier": {"lease": 4.0, "shards": 64}}


def one_node(server: redis.Redis) -> None:
    """One of three nodes comes back empty: every third shard is gone."""
    keys = [key for key in server.scan_iter("{crawl:*}:*") if int(key.partition(b":")[2].partition(b"}")[0]) % 3 == 0]
    server.delete(*keys)


def everything(server: redis.Redis) -> None:
    server.flushall()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "valkey").mkdir()
    with Web(tmp_path, seed=5, domains=24, pages=240, features=EVEN) as served:
        yield served


@pytest.mark.parametrize("lose", [one_node, everything])
def test_what_was_lost_is_noticed_and_restored_from_the_archives(
    web: Web, tmp_path: Path, lose: Callable[[redis.Redis], None]
) -> None:
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        bench(tmp_path, web, valkey.url, PACE) as crawler,
        redis.Redis(unix_socket_path=str(valkey.socket)) as server,
    ):
        # Given a crawl, some shards of which are lost in the middle,
        running = crawler.gather(2)
        web.wait_for(120)
        lose(server)
        # then no replica takes that for the end,
        for replica in running:
            done = replica.wait()
            assert done.code == 2, done.err
            assert "crawl_ended" not in done.err
            assert "Traceback" not in done.err
            assert done.err.splitlines()[-1].startswith("error: crawl 'crawl' ")
        # none can be started,
        again = crawler.run("run", "--until-empty")
        assert again.code == 2, again.err
        if lose is one_node:
            assert "crawler repair" in again.err
            assert "data lost" in crawler.type("status")
            assert crawler.status()["shards_lost"] == 22
        # and after a repair the crawl goes on and keeps each page once.
        assert "shards restored" in crawler.type("repair", "-f", str(crawler.seeds))
        assert "no shard has lost" in crawler.type("repair", "-f", str(crawler.seeds))
        assert crawler.run("run", "--until-empty").code == 0
        urls = [line["url"] for line in crawler.lines()]
        assert repeated(urls) == []
        result = web.verdict(repeats=len(web.repeats()), delay_s=0.0)
        assert result.missing == [], str(result)
        assert web.expected.urls <= set(urls)
