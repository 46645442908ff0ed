"""`crawler reshard` while replicas crawl: by the web's log and the archive, nothing is lost, and nothing done twice."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.identity.keys import make_key
from tests.e2e.harness import EVEN, Bench, Running, Tables, Web, bench, wait_until
from tests.e2e.victims import kill, replicas_under
from tests.identity.signed_requests import DIRECTORY
from tests.killing import find

pytestmark = [pytest.mark.e2e, pytest.mark.long]

DELAY_S = 0.25
PACE: Tables = {"politeness": {"delay": DELAY_S}, "frontier": {"shards": 8}}

EARLY = 60
"""Number of requests after which every domain was requested, and none for more than a few pages."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, seed=5, domains=24, pages=24 * 24, features=EVEN) as served:
        yield served


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    with bench(tmp_path, web, tables=PACE, has_server=True) as crawler:
        yield crawler


def until_said(command: Running, text: str) -> None:
    wait_until(lambda: text in command.err or not command.is_running, f"{text!r} from the command")


def check(crawler: Bench, web: Web, shards: int, kills: int = 0) -> None:
    """Every URL is in the archive exactly once, and the crawl has `shards` shards."""
    assert crawler.status()["shards"] == shards
    findings = find(crawler.out, web.expected.urls | web.expected.denied, kills)
    assert findings.ok, str(findings)


def test_running_replicas_continue_with_more_shards_and_nothing_is_fetched_twice(crawler: Bench, web: Web) -> None:
    """They keep their identity, too: every request is signed."""
    make_key(crawler.folder / "key.pem")
    crawler.configure({"identity": {"keys": [str(crawler.folder / "key.pem")], "directory": DIRECTORY}})
    replicas = crawler.gather(2)
    web.wait_for(EARLY)
    for shards in (32, 8):
        before = web.requests
        done = crawler.run("reshard", "--shards", str(shards))
        assert done.code == 0, done.err
        assert f"{shards} shards instead of" in done.out
        assert "the crawl stood still for" in done.out
        assert "copied" in done.err
        web.wait_for(before + EARLY)
        wait_until(lambda: len(crawler.status()["replicas"]) == 2, "both replicas to continue")
    for replica in replicas:
        ended = replica.wait()
        assert ended.code == 0, ended.err
        assert re.search(r"resharded .*shards=32", ended.err)
    assert crawler.status()["leases_expired"] == 0
    result = web.verdict(delay_s=DELAY_S)
    assert result.ok, str(result)
    assert all(record.signed for record in web.records())
    check(crawler, web, 8)


def test_a_killed_command_and_a_killed_replica_lose_nothing(crawler: Bench, web: Web) -> None:
    """Until the command is typed again, the replicas wait. A replica that was started meanwhile waits, too."""
    supervisor = crawler.supervise(3)
    web.wait_for(EARLY)
    command = crawler.start("reshard", "--shards", "32")
    until_said(command, "replicas end")
    victim = kill(replicas_under(supervisor, 3)[0])
    command.kill()
    assert crawler.status()["condition"]["word"] == "resharding"
    assert "being resharded" in crawler.run("domains").err

    again = crawler.start("reshard", "--shards", "32")
    until_said(again, "replicas end")
    again.kill()
    before = crawler.status()["done"]
    other = crawler.run("reshard", "--shards", "16")
    assert other.code == 2
    assert "complete that first with --shards 32, or undo it with --cancel" in other.err
    assert crawler.status()["done"] == before

    assert crawler.run("reshard", "--shards", "32").code == 0
    wait_until(lambda: crawler.status()["done"] > before, "the replicas to continue")
    wait_until(lambda: len(crawler.status()["replicas"]) == 3, "the replica that was replaced")
    assert crawler.run("reshard", "--shards", "8").code == 0
    ended = supervisor.wait(120)
    assert ended.code == 0, ended.err
    repeats = web.repeats()
    assert [record.url for record in repeats if not victim.explains(record)] == []
    result = web.verdict(repeats=len(repeats), delay_s=DELAY_S)
    assert result.ok, str(result)
    check(crawler, web, 8, kills=1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_command_says_how_to_go_on_and_can_be_undone(
    crawler: Bench, web: Web, number: signal.Signals
) -> None:
    (replica,) = crawler.gather(1)
    web.wait_for(EARLY)
    command = crawler.start("reshard", "--shards", "32")
    until_said(command, "replicas end")
    os.kill(command.pid, number)
    stopped = command.wait()
    assert stopped.code == 128 + number
    assert "to continue: crawler reshard --shards 32 --crawl crawl" in stopped.err
    assert "to undo it: crawler reshard --cancel" in stopped.err
    assert "the reshard was undone; it has 8 shards" in crawler.run("reshard", "--cancel").out
    ended = replica.wait()
    assert ended.code == 0, ended.err
    result = web.verdict(delay_s=DELAY_S)
    assert result.ok, str(result)
    check(crawler, web, 8)
