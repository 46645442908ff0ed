"""Somebody writes over keys of two domains in Redis: the others are crawled on, and a repair restores these two."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from frontier.keys import CrawlKeys
from tests.e2e.harness import EVEN, Tables, Web, bench, repeated, wait_until
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SHARDS = 16
PACE: Tables = {"politeness": {"delay": 0.3}, "frontier": {"lease": 4.0, "shards": SHARDS}}


def test_keys_of_a_wrong_type_cost_their_domains_alone_and_are_repaired(tmp_path: Path) -> None:
    keys = CrawlKeys("crawl", SHARDS)
    (tmp_path / "valkey").mkdir()
    with (
        Web(tmp_path, seed=5, domains=12, pages=480, features=EVEN) as web,
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        bench(tmp_path, web, valkey.url, PACE) as crawler,
        redis.Redis(unix_socket_path=str(valkey.socket)) as server,
    ):
        # Given a crawl, when the hash of one domain and the queue of another one are written over,
        running = crawler.gather(2)
        web.wait_for(60)
        hosts = Counter(urlsplit(line["url"]).hostname for line in crawler.lines())
        first, second = (host or "" for host, _ in hosts.most_common(2))
        broken = [keys.of(first).domain(first), keys.of(second).queue(second)]
        for key in broken:
            server.set(key, "x")
        # then they are named,
        wait_until(lambda: all(key in "".join(one.err for one in running) for key in broken), "the log to name them")
        wait_until(lambda: all(key in crawler.type("status") for key in broken), "the status to name them")
        assert "crawler repair --evicted" in crawler.type("status")
        # all other domains are crawled on,
        hosts = Counter(urlsplit(line["url"]).hostname for line in crawler.lines())
        others = {urlsplit(url).hostname or "" for url in web.expected.urls} - {first, second}

        def have_gone_on() -> bool:
            now = Counter(urlsplit(line["url"]).hostname for line in crawler.lines())
            return all(now[host] >= hosts[host] + 5 for host in others)

        wait_until(have_gone_on, "all others to be crawled on", step_s=0.2)
        assert not any("redis_away" in one.err or "Traceback" in one.err for one in running)
        assert all(one.is_running for one in running)
        # and after a repair, the two are, too.
        crawler.type("stop")
        assert [one.wait().code for one in running] == [0, 0]
        wait_until(lambda: not crawler.status()["replicas"], "the replicas to be gone")
        assert "shards restored" in crawler.type("repair", "--evicted", "-f", str(crawler.seeds))
        crawler.type("resume")
        assert crawler.run("run", "--until-empty").code == 0
        assert {one.domain for one in web.repeats()} <= {first, second}
        urls = [line["url"] for line in crawler.lines()]
        assert repeated(urls) == []
        assert web.expected.urls <= set(urls)
        assert crawler.status()["wrong_types"] == []
