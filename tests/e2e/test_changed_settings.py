"""Settings that change during a crawl: running replicas apply them, and report those that need a restart."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, Bench, Running, Tables, Web, bench, wait_until
from tests.simweb.server import Record
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

QUICK_S, SLOW_S = 0.1, 0.7

ENOUGH = 400
"""Pages from a change of the limit to the limit: more than are fetched until all replicas have learned of it."""

FOLLOWED_S = 5.0
"""Replicas poll every half second here, and at least every second by default. A busy machine gets more time."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Bench]:
    """A web that takes longer than any test here, and commands on a Valkey server."""
    with (
        Web(tmp_path, seed=3, domains=12, pages=4_800, features=EVEN) as web,
        ValkeyProcess(tmp_path, persistent=False) as valkey,
        bench(tmp_path, web, valkey.url, {"politeness": {"delay": QUICK_S}}) as crawler,
    ):
        yield crawler


def revisions(cluster: Bench) -> list[int]:
    return [record["settings_revision"] for record in cluster.status()["replicas"]]


def pages(cluster: Bench) -> dict[str, int]:
    return {record["replica"]: record["pages"] for record in cluster.status()["replicas"]}


def gaps(records: list[Record]) -> list[tuple[float, float]]:
    """(start, seconds since the end of the previous one) of each request to a domain except the first."""
    records.sort(key=lambda record: (record.domain, record.start))
    by_domain = [list(group) for _, group in groupby(records, key=lambda record: record.domain)]
    return [(after.start, after.start - before.end) for group in by_domain for before, after in pairwise(group)]


def both_fetched(cluster: Bench, more: int) -> None:
    """Wait until each of two replicas has fetched `more` pages."""
    before = pages(cluster)
    assert len(before) == 2
    wait_until(
        lambda: all(count >= before[name] + more for name, count in pages(cluster).items()),
        f"{more} pages by each replica",
        step_s=0.1,
    )


def stop(replicas: list[Running]) -> None:
    for replica in replicas:
        replica.send(signal.SIGTERM)
    assert [replica.wait().code for replica in replicas] == [0, 0]


def test_a_delay_changed_in_mid_crawl_is_kept_by_both_replicas(cluster: Bench) -> None:
    """By the web's log, all replicas respect the new delay some time after it was set, and no longer some time after it was
    removed."""
    replicas = cluster.gather(2)
    both_fetched(cluster, 20)
    slow_at = time.monotonic()
    told = cluster.apply({"politeness": {"delay": SLOW_S}})
    assert "at once" in told
    wait_until(lambda: revisions(cluster) == [2, 2], "two replicas at revision 2", step_s=0.1)
    both_fetched(cluster, 20)
    quick_at = time.monotonic()
    cluster.apply({"politeness": {"delay": QUICK_S}})
    wait_until(lambda: revisions(cluster) == [3, 3], "two replicas at revision 3", step_s=0.1)
    both_fetched(cluster, 40)
    stop(replicas)
    found = gaps(cluster.web.records())
    too_early = [at - slow_at for at, gap in found if gap < SLOW_S - 0.002 and slow_at <= at < quick_at]
    assert max(too_early, default=0.0) < FOLLOWED_S
    assert any(gap < SLOW_S for at, gap in found if at < slow_at)
    assert any(gap < SLOW_S for at, gap in found if at > quick_at)
    assert all("settings_changed" in replica.err for replica in replicas)


def test_a_limit_that_one_replica_learns_late_is_met_exactly(cluster: Bench) -> None:
    """Given a replica that is suspended when the limit is set, and that continues when the other one fetches nothing more,
    then its pages count, too. It still has its leases."""
    lease: Tables = {"frontier": {"lease": 60.0}}
    cluster.configure(lease)
    prompt, late = replicas = cluster.gather(2)
    both_fetched(cluster, 20)
    late.send(signal.SIGSTOP)
    limit = cluster.status()["done"] + ENOUGH // 4
    cluster.apply({"limits": {"max_pages": limit}, **lease})
    wait_until(lambda: "settings_changed" in prompt.err, "a replica at revision 2")
    counts = [-1]

    def fetches_nothing() -> bool:
        counts.append(cluster.status()["done"])
        return counts[-1] == counts[-2]

    wait_until(fetches_nothing, "a replica that waits", step_s=1.0)
    late.send(signal.SIGCONT)
    assert [replica.wait().code for replica in replicas] == [0, 0]
    assert cluster.status()["done"] == limit
