"""Redis comes back without the data of some shards, or of all: nobody takes that for the end, and it can be repaired."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from frontier.domains import shard_of
from frontier.keys import CrawlKeys
from tests.e2e.harness import EVEN, Tables, Web, bench, repeated, wait_until
from tests.valkey import ValkeyProcess
from tests.valkey_cluster import ClusterNode, ValkeyCluster

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DELAY_S, SHARDS = 0.3, 64
PACE: Tables = {"politeness": {"delay": DELAY_S}, "frontier": {"lease": 4.0, "shards": SHARDS}}

LONG_LEASES: Tables = {"frontier": {"lease": 30.0, "shards": SHARDS}}
"""By the replicas' clocks, leases that Redis has lost would last until long after the repair."""

LONGEST_GAP_S = 2.0
"""Between two requests to the domains of other nodes, on a busy machine."""


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
        web.stop_at(120)
        running = crawler.gather(2)
        with web.stopped():
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


def cleared(_: ValkeyCluster, node: ClusterNode) -> None:
    node.ask("FLUSHALL")


def restarted_empty(cluster: ValkeyCluster, node: ClusterNode) -> None:
    cluster.kill(node)
    cluster.restart(node, empty=True)


@pytest.mark.parametrize("lose", [cleared, restarted_empty])
def test_a_node_of_a_cluster_that_has_lost_its_data_costs_only_its_shards(
    tmp_path: Path, lose: Callable[[ValkeyCluster, ClusterNode], None]
) -> None:
    keys = CrawlKeys("crawl", SHARDS)
    with (
        Web(tmp_path, seed=5, domains=24, pages=1200, features=EVEN) as web,
        ValkeyCluster(with_replicas=False) as cluster,
        bench(tmp_path, web, cluster.url, PACE | LONG_LEASES) as crawler,
    ):
        # Given a crawl on a cluster,
        running = crawler.gather(2)
        web.wait_for(200)
        control = cluster.owner(keys.meta)
        node = next(one for one in cluster.masters if one is not control)
        of_shard = [cluster.owner(shard.base) for shard in keys.shards]
        # when a node without the control keys loses its data,
        lose(cluster, node)
        lost_at = time.monotonic()
        wait_until(lambda: all("redis_shards_lost" in replica.err for replica in running), "the replicas to notice")
        noticed_at = time.monotonic()
        # then it is reported,
        wait_until(lambda: "data lost" in crawler.type("status"), "the summary to say so")
        assert crawler.status()["shards_lost"] == of_shard.count(node)
        time.sleep(max(0.0, noticed_at + 3 - time.monotonic()))
        repaired_at = time.monotonic()
        assert "shards restored" in crawler.type("repair", "-f", str(crawler.seeds))
        # and after a repair, the same replicas crawl everything.
        for replica in running:
            done = replica.wait()
            assert done.code == 0, done.err
            assert "Traceback" not in done.err
        urls = [line["url"] for line in crawler.lines()]
        assert repeated(urls) == []
        assert web.expected.urls <= set(urls)
        result = web.verdict(repeats=len(web.repeats()), delay_s=0.0)
        assert (result.missing, result.overlaps) == ([], []), str(result)
        # Meanwhile, only the domains of its shards waited, and only their pages were fetched twice.
        concerned = {one.domain for one in web.records() if of_shard[shard_of(one.domain, SHARDS)] is node}
        others = [one.start for one in web.records() if one.domain not in concerned]
        times = [lost_at, *(at for at in others if lost_at < at < repaired_at), repaired_at]
        assert max(after - before for before, after in pairwise(times)) < LONGEST_GAP_S
        assert not any(noticed_at + 0.5 < one.start < repaired_at for one in web.records() if one.domain in concerned)
        assert {one.domain for one in web.repeats()} <= concerned
