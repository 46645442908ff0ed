"""What a restart of Redis costs, by how it keeps its data; `docs/explanation/faults.md` has the table."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import redis

from frontier.recent_writes import KEPT_MS
from tests.e2e.harness import EVEN, Bench, Running, Tables, Web, bench, repeated, wait_until
from tests.e2e.victims import IN_HAND_S
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
DELAY_S = 0.3
PACE: Tables = {"politeness": {"delay": DELAY_S}}
"""With twelve pages per domain, the crawl takes at least four seconds, so the server dies during it on any machine."""
LEASE_S = 20.0
"""Longer than the outage, so that URLs in flight are not fetched again, and short enough to wait for the end of a lease
whose reply was lost with the server."""

REMEMBERED_S = 1.5 * KEPT_MS / 1000
"""After that, a replica no longer doubts its last writes to a server that runs."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """Pages that all succeed at the first try, so that every second request must have a reason."""
    with Web(tmp_path, seed=3, domains=24, pages=288, features=EVEN) as served:
        (tmp_path / "valkey").mkdir()
        yield served


def start(crawler: Bench, web: Web, replicas: int = 2) -> list[Running]:
    """Replicas that are all crawling."""
    running = crawler.gather(replicas)
    web.wait_for(48)
    return running


def restart(valkey: ValkeyProcess, running: list[Running]) -> None:
    """Kill the server with SIGKILL, and restart it when every replica has noticed."""
    valkey.kill()
    wait_until(lambda: all("redis_away" in replica.err for replica in running), "all replicas to miss Redis")
    valkey.start()


@pytest.mark.parametrize("setting", ["always", "everysec"])
def test_a_killed_server_that_logs_its_writes_costs_nothing(web: Web, tmp_path: Path, setting: str) -> None:
    """With either setting, the kernel keeps the writes of a killed process. No URL is lost or fetched twice."""
    options = () if setting == "always" else EVERYSEC
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=setting == "always", options=options) as valkey,
        bench(tmp_path, web, valkey.url, {**PACE, "frontier": {"lease": LEASE_S}}) as crawler,
    ):
        running = start(crawler, web)
        restart(valkey, running)
        assert [replica.wait().code for replica in running] == [0, 0]
        assert all("redis_back" in replica.err for replica in running)
        result = web.verdict(delay_s=DELAY_S)
        assert result.ok, str(result)


def test_a_lost_second_costs_second_requests_but_no_url(web: Web, tmp_path: Path) -> None:
    """As a power failure under `everysec` would: what was logged last is not there any more. No URL is lost, and only
    what was fetched since is fetched again."""
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False, options=EVERYSEC) as valkey,
        bench(tmp_path, web, valkey.url, PACE) as crawler,
    ):
        running = start(crawler, web)
        (logged,) = (tmp_path / "valkey" / "appendonlydir").glob("*.incr.aof")
        size, cut_at = logged.stat().st_size, time.monotonic()
        wait_until(lambda: logged.stat().st_size > size + 20_000, "a second's worth of writes")
        valkey.kill()
        with logged.open("r+b") as file:
            file.truncate(size)
        valkey.start()
        assert [replica.wait().code for replica in running] == [0, 0]
        repeats = web.repeats()
        assert [record.url for record in repeats if record.end < cut_at - IN_HAND_S] == []
        assert repeated([line["url"] for line in crawler.lines()]) == []
        result = web.verdict(repeats=len(repeats), delay_s=DELAY_S)
        assert result.missing == [], str(result)
        assert result.denied == [], str(result)


def test_a_server_that_loses_its_last_second_after_all_replicas_have_left_has_their_pages(
    web: Web, tmp_path: Path
) -> None:
    """Nobody is there to repeat their writes. So a replica ends when the server has had the time to sync them."""
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False, options=EVERYSEC) as valkey,
        bench(tmp_path, web, valkey.url, PACE) as crawler,
    ):
        (replica,) = start(crawler, web, 1)
        (logged,) = (tmp_path / "valkey" / "appendonlydir").glob("*.incr.aof")
        replica.send(signal.SIGTERM)
        sizes = []
        while replica.is_running:
            sizes.append((time.monotonic(), logged.stat().st_size))
            time.sleep(0.01)
        assert replica.wait().code == 0
        assert not list(crawler.out.glob("*.open"))
        synced_at = time.monotonic() - 1.0
        valkey.kill()
        with logged.open("r+b") as file:
            file.truncate(max(size for at, size in sizes if at < synced_at or at == sizes[0][0]))
        valkey.start()
        assert crawler.run("run", "--until-empty").code == 0
        assert repeated([line["url"] for line in crawler.lines()]) == []
        assert web.repeats() == []


def test_a_stop_while_the_server_refuses_writes_leaves_files_to_the_next_start(web: Web, tmp_path: Path) -> None:
    """As with a full disk, it answers, and may lose what it took last. Then a page may only be kept if it is settled."""
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        bench(tmp_path, web, valkey.url, PACE) as crawler,
        closing(redis.Redis.from_url(valkey.url)) as server,
    ):
        (replica,) = start(crawler, web, 1)
        server.config_set("min-replicas-to-write", 1)
        wait_until(lambda: "redis_away" in replica.err, "the replica to be refused")
        time.sleep(REMEMBERED_S)
        replica.send(signal.SIGTERM)
        done = replica.wait()
        assert (done.code, "stopped_in_doubt" in done.err) == (0, True), done.err
        assert list(crawler.out.glob("*.open"))
        server.config_set("min-replicas-to-write", 0)
        assert crawler.run("run", "--until-empty").code == 0
        assert repeated([line["url"] for line in crawler.lines()]) == []
