"""Guarded settings that somebody has written to Redis, and real replicas that find them there."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from crawler.cli.main import app
from crawler.settings.load import load
from frontier.crawls import open_crawl, save_settings
from frontier.store import RedisStore, connect
from tests.e2e.harness import Finished, Running, Tables, wait_until
from tests.site import Site
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

ACCEPT = "CRAWLER_REPLICA__ACCEPT"
HOOK = """
from pathlib import Path
Path("imported").touch()
def hook(page): return {"hooked": True}
def score(url, depth, kind): return 1.0
def sink(context): raise SystemExit("made")
"""


class Cluster:
    """A folder with a module that settings can name, and a crawl with one seed."""

    def __init__(self, folder: Path, redis: str, crawl: str, port: int) -> None:
        self._folder = folder
        self._redis, self._crawl = redis, crawl
        self._running: list[Running] = []
        self.site = f"127.0.0.1:{port}"
        (folder / "theirs.py").write_text(HOOK)
        self.reach: Tables = {"fetch": {"host_map": [f"a.test={self.site}"]}, "politeness": {"delay": 0.02}}

    def start(self, *words: str, **environment: str) -> Running:
        command = [sys.executable, "-m", "crawler", *words, "--crawl", self._crawl, "--redis", self._redis]
        quick = {"CRAWLER_REPLICA__INTERVAL": "0.5"} if words[0] == "run" else {}
        running = Running(command, self._folder, str(len(self._running)), {**quick, **environment})
        self._running.append(running)
        return running

    def type(self, *words: str, **environment: str) -> Finished:
        return self.start(*words, **environment).wait()

    def create(self) -> None:
        """With default settings only."""
        done = self.type("seed", "http://a.test/")
        assert done.code == 0, done.err

    def write(self, tables: Tables) -> None:
        """Write settings to Redis, as anyone with access to it can."""

        async def save(store: RedisStore) -> None:
            await save_settings(store, await open_crawl(store, self._crawl), load(None, tables).crawl.to_json())

        asyncio.run(self._with_store(save))

    async def _with_store(self, work: Callable[[RedisStore], Awaitable[None]]) -> None:
        store = await connect(self._redis)
        try:
            await work(store)
        finally:
            await store.close()

    @property
    def imported(self) -> bool:
        return (self._folder / "imported").exists()

    @property
    def pages(self) -> list[dict[str, Any]]:
        files = sorted((self._folder / "crawl-out").glob("*.jsonl*"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    @property
    def record(self) -> dict[str, Any]:
        """The health record of the only replica, empty while there is none. Asked in this process, which is much faster."""
        words = ["status", "--json", "--crawl", self._crawl, "--redis", self._redis]
        replicas = json.loads(CliRunner().invoke(app, words, catch_exceptions=False).stdout)["replicas"]
        return dict(replicas[0]) if replicas else {}

    def close(self) -> None:
        for running in self._running:
            if running.is_running:
                running.kill()


@pytest.fixture
def cluster(tmp_path: Path, valkey: ValkeyProcess, crawl_name: str) -> Iterator[Cluster]:
    with Site(lambda request: None if request.path == "/robots.txt" else "") as site:
        made = Cluster(tmp_path, valkey.url, crawl_name, site.port)
        made.create()
        yield made
        made.close()


def assert_refused(done: Finished, name: str) -> None:
    assert done.code == 2, done.err
    (line,) = done.err.splitlines()
    assert line.startswith(f"error: {name} = ")
    assert "replica.accept" in line


@pytest.mark.parametrize(
    ("name", "tables"),
    [
        ("archive.on_page", {"archive": {"on_page": ["theirs:hook"]}}),
        ("archive.sinks", {"archive": {"sinks": ["theirs:sink"]}}),
        ("frontier.scorer", {"frontier": {"scorer": "theirs:score"}}),
        ("fetch.allow_private", {"fetch": {"allow_private": True}}),
    ],
)
def test_a_guarded_setting_that_only_redis_has_stops_the_start(cluster: Cluster, name: str, tables: Tables) -> None:
    cluster.write(tables)
    commands: list[tuple[str, ...]] = [("run",), ("run", "--replicas", "2"), ("crawl", "--quiet", "--keep-settings")]
    if name == "frontier.scorer":
        commands.append(("seed", "http://b.test/"))
    for running in [cluster.start(*words) for words in commands]:
        assert_refused(running.wait(), name)
    assert not cluster.imported


def test_a_replica_accepts_what_its_machine_allows(cluster: Cluster) -> None:
    """By an allow-list in its environment, or because its own environment has the same value."""
    cluster.write({**cluster.reach, "archive": {"on_page": ["theirs:hook"]}})
    own = {"CRAWLER_FETCH__HOST_MAP": json.dumps([f"a.test={cluster.site}"])}
    done = cluster.type("run", "--until-empty", **own, **{ACCEPT: '["archive.on_page=theirs:hook"]'})
    assert done.code == 0, done.err
    assert [(page["status"], page["extra"]) for page in cluster.pages] == [(200, {"hooked": True})]


def test_crawl_passes_its_own_values_to_its_replicas(cluster: Cluster) -> None:
    words = ("--apply-settings", "--host-map", f"a.test={cluster.site}", "--on-page", "theirs:hook", "--replicas", "2")
    done = cluster.type("crawl", "--quiet", *words)
    assert done.code == 0, done.err
    assert [(page["status"], page["extra"]) for page in cluster.pages] == [(200, {"hooked": True})]


def test_a_running_replica_keeps_its_settings(cluster: Cluster) -> None:
    """And applies the next revision that it accepts."""
    cluster.write(cluster.reach)
    replica = cluster.start("run", **{ACCEPT: '["fetch.host_map"]'})
    wait_until(lambda: cluster.record.get("pages") == 1, "the first page", step_s=0.1)
    cluster.write({**cluster.reach, "archive": {"on_page": ["theirs:hook"]}, "limits": {"max_pages": 7}})
    refused = wait_until(lambda: cluster.record["settings_refused"], "the refusal", step_s=0.1)
    assert refused.startswith("archive.on_page = 'theirs:hook' is set in Redis but not on this machine")
    assert cluster.record["settings_revision"] == 2
    cluster.write({**cluster.reach, "limits": {"max_pages": 8}})
    wait_until(lambda: cluster.record["settings_revision"] == 4, "the next revision", step_s=0.1)
    assert cluster.record["settings_refused"] == ""
    assert replica.err.count("settings_refused") == 1
    assert not cluster.imported
