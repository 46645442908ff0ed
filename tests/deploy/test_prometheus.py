"""A real Prometheus watches a real crawl of three replicas, found by service discovery."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.prometheus import Prometheus
from tests.e2e.harness import Bench, Running, Tables, Web, bench, wait_until
from tests.valkey import ValkeyProcess

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
    pytest.mark.long,
]

DASHBOARDS = Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards"
TABLES: Tables = {
    "politeness": {"delay": 0.2, "backoff_base": 1.0},
    "replica": {"listen": "127.0.0.1:0"},
    "recrawl": {"rules": ["every=3s"]},
    "archive": {"on_page": ["builtins:repr"]},  # a hook that fails, because it returns a text
}


class Cluster:
    """Three replicas, and the Prometheus that monitors them."""

    def __init__(self, commands: Bench, folder: Path) -> None:
        self.commands = commands
        commands.seed()
        self.replicas = [self.join()]
        wait_until(lambda: self.shards() == [64], "the first replica to own everything")
        self.prometheus = Prometheus(folder, address(self.replicas[0]))

    def join(self) -> Running:
        return self.commands.start("run")

    def shards(self) -> list[int]:
        """The number of shards that each replica owns."""
        return [record["shards"] for record in self.snapshot()["replicas"]]

    def snapshot(self) -> Any:
        with urllib.request.urlopen(f"http://{address(self.replicas[0])}/snapshot", timeout=20) as answer:
            return json.load(answer)


def address(replica: Running) -> str:
    found = wait_until(lambda: re.search(r"replica_started .*address=(\S+)", replica.err), "a replica to start")
    return str(found[1])


def name(replica: Running) -> str:
    found = re.search(r"replica_started .*replica=(\S+)", replica.err)
    assert found is not None
    return found[1]


def has_given_back(replica: Running) -> bool:
    """Whether the replica has noticed the pause and returned all leases."""
    with urllib.request.urlopen(f"http://{address(replica)}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    values = dict(re.findall(r"^(peercrawl_\w+)\{\S+ (\S+)$", "\n".join(lines), re.MULTILINE))
    return (values["peercrawl_paused"], values["peercrawl_leased_domains"]) == ("1.0", "0.0")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        ValkeyProcess(folder, persistent=False) as valkey,
        Web(folder, domains=40, pages=4_000) as web,
        bench(folder, web, valkey.url, TABLES) as commands,
    ):
        made = Cluster(commands, folder)
        with made.prometheus as prometheus:
            wait_until(
                lambda: (prometheus.value("sum(peercrawl_leased_domains)") or 0) > 5, "the first replica to be scraped"
            )
            made.replicas += [made.join(), made.join()]  # so that shards move while Prometheus scrapes
            wait_until(lambda: prometheus.value('sum(up{job="peercrawl"})') == 3, "three targets that are up")
            wait_until(lambda: (prometheus.value("max(peercrawl_replicas)") or 0) == 3, "a view of three")
            wait_until(lambda: (prometheus.value("sum(peercrawl_pages_total)") or 0) > 200, "some pages")
            yield made


def expressions() -> list[tuple[str, str, str]]:
    """(dashboard, panel, query) of every target of every panel."""
    boards = [json.loads(file.read_text()) for file in sorted(DASHBOARDS.glob("*.json"))]
    return [
        (board["uid"], panel["title"], target["expr"])
        for board in boards
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def test_every_query_of_every_panel_returns_data(cluster: Cluster) -> None:
    missing = {(uid, title, expression): asked(expression) for uid, title, expression in expressions()}
    assert len(expressions()) > 60

    def is_whole() -> bool:
        """Whether all queries have data. A rate needs two scrapes of its counter."""
        for where, query in list(missing.items()):
            if any(math.isfinite(value) for _, value in cluster.prometheus.query(query)):
                del missing[where]
        return not missing

    with contextlib.suppress(AssertionError):
        wait_until(is_whole, "all panels", step_s=0.1)
    assert missing == {}


def asked(expression: str, interval: str = "60s") -> str:
    """The query with its variables replaced as Grafana does."""
    filled = expression.replace("$crawl", "crawl").replace("$replica", ".*")
    return filled.replace("$__rate_interval", interval).replace("$__range", "60s")


def test_the_series_name_crawl_and_replica_however_they_are_found(cluster: Cluster) -> None:
    """Without service discovery, Prometheus knows only the address."""
    fixed = next(
        one for one in cluster.prometheus.ask("targets")["activeTargets"] if one["labels"]["job"] == "peercrawl"
    )
    assert set(fixed["labels"]) == {"instance", "job"}
    every = 'count({__name__=~"(peercrawl|process)_.*", job="peercrawl"})'
    named = every.replace("job=", 'crawl="crawl", replica!="", job=')
    assert cluster.prometheus.value(f"{every} - {named}") == 0  # in one query, because scrapes go on


def test_annotations_mark_replicas_and_settings(cluster: Cluster) -> None:
    """The first replica is marked when the others join, and new settings when they apply."""
    board = json.loads((DASHBOARDS / "overview.json").read_text())
    came, left, changed = (asked(one["expr"], "8s") for one in board["annotations"]["list"])
    joined = {name(replica) for replica in cluster.replicas[1:]}
    assert joined <= {labels["replica"] for labels in cluster.prometheus.marks(came)}
    assert cluster.prometheus.marks(left) == []
    cluster.commands.apply({"politeness": {"delay": 0.3}})
    wait_until(lambda: cluster.prometheus.marks(changed), "a mark for the settings")
    assert {labels["crawl"] for labels in cluster.prometheus.marks(changed)} == {"crawl"}


def test_no_label_takes_its_values_from_the_web(cluster: Cluster) -> None:
    series = cluster.prometheus.query('{__name__=~"peercrawl_.*"}')
    values = {value for labels, _ in series for name, value in labels.items() if name != "__name__"}
    assert not [value for value in values if ".test" in value or "http:" in value]
    assert len(values) < 250


def summary_of(cluster: Cluster) -> dict[str, Any]:
    """The summary, or an empty one: on a busy machine it may expire before the next one is written."""
    return cluster.snapshot()["summary"] or {}


def test_top_page_and_prometheus_agree_on_pages(cluster: Cluster) -> None:
    """The crawl is paused, so that the numbers do not change meanwhile."""
    assert cluster.commands.run("pause").code == 0
    done = 'max(peercrawl_crawl_urls_settled_total{outcome="done"})'
    wait_until(lambda: all(map(has_given_back, cluster.replicas)), "all domains given back", step_s=0.1)
    settled = cluster.commands.status()["done"]
    wait_until(lambda: summary_of(cluster).get("done") == settled, "the live page to say so")
    wait_until(lambda: cluster.prometheus.value(done) == settled, "Prometheus to say so")
    top = cluster.commands.run("top", "--once", "--json")
    assert json.loads(top.out)["summary"]["done"] == settled
    counted = 'sum(peercrawl_pages_total{outcome="done"})'
    wait_until(lambda: cluster.prometheus.value(counted) == settled, "a scrape of every replica")
    assert cluster.commands.run("resume").code == 0
    wait_until(lambda: cluster.commands.status()["done"] > settled or summary_of(cluster).get("open") == 0, "going on")


def test_a_killed_replica_causes_an_alert_until_it_is_replaced(cluster: Cluster) -> None:
    prometheus = cluster.prometheus
    wait_until(lambda: not prometheus.alerts("PeercrawlReplicaLost"), "quiet")
    victim = cluster.replicas.pop()
    victim.send(signal.SIGKILL)
    wait_until(lambda: "firing" in prometheus.alerts("PeercrawlReplicaLost"), "the alert to fire")
    gone = address(victim)
    wait_until(lambda: gone not in {one["address"] for one in cluster.snapshot()["replicas"]}, "its record to expire")
    cluster.replicas.append(cluster.join())
    wait_until(lambda: not prometheus.alerts("PeercrawlReplicaLost"), "the alert to end")
    wait_until(lambda: prometheus.value('sum(up{job="peercrawl"})') == 3, "three targets again")
