"""Replicas are killed, added and stopped during a crawl. The web's log shows the result."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, Bench, Tables, Web, bench, wait_until
from tests.e2e.victims import Victim, kill, replicas_under

pytestmark = pytest.mark.e2e

DELAY_S = 0.25
PACE: Tables = {"politeness": {"delay": DELAY_S}, "frontier": {"lease": 2.0}}
"""With twelve pages per domain, the crawl takes at least three seconds, so replicas change during it."""

EARLY = 48
"""Number of requests after which every domain was requested, and none for more than a few pages."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    """Some hundred pages that all answer at the first try, so every second request for one has to be explained."""
    with Web(tmp_path, seed=3, domains=24, pages=288, features=EVEN) as served:
        yield served


@pytest.fixture
def cluster(tmp_path: Path, web: Web) -> Iterator[Bench]:
    """Commands that share a Valkey server."""
    with bench(tmp_path, web, tables=PACE, has_server=True) as crawler:
        yield crawler


def assert_nothing_lost_and_doubles_explained(web: Web, victim: Victim) -> None:
    repeats = web.repeats()
    assert [record.url for record in repeats if not victim.explains(record)] == []
    result = web.verdict(repeats=len(repeats), delay_s=DELAY_S)
    assert result.ok, str(result)


def test_killed_replica_of_a_supervisor_loses_nothing(web: Web, tmp_path: Path) -> None:
    """One of three replicas is killed. Its URLs return when their leases expire; those in flight are fetched again."""
    with bench(tmp_path, web, tables=PACE) as crawler:
        web.stop_at(EARLY)
        supervisor = crawler.supervise(3)
        with web.stopped():
            victim = kill(replicas_under(supervisor, 3)[0])
        done = supervisor.wait()
        assert done.code == 0, done.err
        assert "replica_killed" in done.err
        assert_nothing_lost_and_doubles_explained(web, victim)


def test_sigterm_hands_over_at_once(web: Web, cluster: Bench) -> None:
    """A replica that is stopped returns its leases, so the other one never waits for a lease to expire."""
    cluster.configure({"frontier": {"lease": 60.0}})
    web.stop_at(EARLY)
    first, second = cluster.gather(2)
    with web.stopped():
        first.send(signal.SIGTERM)
    stopped = first.wait()
    assert stopped.code == 0, stopped.err
    assert "replica_stopped" in stopped.err
    done = second.wait()
    assert done.code == 0, done.err
    assert cluster.status()["leases_expired"] == 0
    result = web.verdict(delay_s=DELAY_S)
    assert result.ok, str(result)


def test_interrupted_crawl_goes_on_where_it_stopped(web: Web, tmp_path: Path) -> None:
    """Ctrl-C stops the crawl cleanly. The same command then fetches the rest, and nothing twice."""
    with bench(tmp_path, web, tables={**PACE, "frontier": {"lease": 60.0}}) as crawler:
        web.stop_at(EARLY)
        crawl = crawler.crawl("--replicas", "2")
        with web.stopped():
            crawl.send(signal.SIGINT)
        stopped = crawl.wait()
        assert stopped.code == 0, stopped.err
        assert "run the same command again" in stopped.out
        again = crawler.crawl("--replicas", "2").wait()
        assert again.code == 0, again.err
        assert crawler.status()["leases_expired"] == 0
        result = web.verdict(delay_s=DELAY_S)
        assert result.ok, str(result)


@pytest.mark.parametrize("words", [("run", "--until-empty"), ("crawl", "--replicas", "2", "--quiet")], ids=" ".join)
def test_second_interrupt_hurries(web: Web, tmp_path: Path, words: tuple[str, ...]) -> None:
    """A site that never responds delays the stop by at most `grace`. A second signal stops it immediately."""
    with socket.create_server(("127.0.0.1", 0)) as silent, bench(tmp_path, web) as crawler:
        mapped = f"silent.test=127.0.0.1:{silent.getsockname()[1]}"
        fetch = {"host_map": [mapped], "read_timeout": 600, "timeout": 600}
        crawler.configure({"fetch": fetch, "replica": {"grace": 600}})
        crawler.type("seed", "http://silent.test/")
        running = crawler.start(*words)
        asked, _ = silent.accept()
        with asked:
            asked.settimeout(180)
            assert asked.recv(4) == b"GET "
            running.send(signal.SIGINT)
            wait_until(
                lambda: not any(record["shards"] for record in crawler.status()["replicas"]),
                "the replicas to let go",
                step_s=0.1,
            )
            assert running.is_running
            running.send(signal.SIGINT)
            done = running.wait()
        assert done.code == 130, (done.out, done.err)
        assert "stopping" in done.err
