"""The short forms of the fault runs; `python -m tests.chaos` and `python -m tests.chaos.cluster_run` are the long ones."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.cluster_run import run as run_on_cluster
from tests.chaos.diary import OUTAGES, Kind, NodeKind
from tests.chaos.plan import NodeOptions, Options
from tests.chaos.run import run

pytestmark = pytest.mark.long

LOADED_RETURN_S = 5.0
"""Other tests share the two cores. `make chaos-cluster` demands two seconds."""


@pytest.mark.e2e
async def test_crawl_under_faults_is_perfect(tmp_path: Path) -> None:
    """Nothing lost, denied or too close; fetched twice only what was in flight at a fault."""
    options = Options(
        seconds=8,
        kills=4,
        restarts=1,
        stops=1,
        proxy_faults=3,
        changes=2,
        replicas=3,
        domains=30,
        pages=660,
        zipf=0.0,
        delay_s=0.4,  # with 22 pages and a robots.txt a domain: nine seconds at least, more than all faults last
    )
    found = await run(options, tmp_path, end_limit_s=300)
    assert found.is_perfect, f"{found}\n{found.details()}"
    assert found.open_at_end_of_faults > 0


@pytest.mark.e2e
@pytest.mark.timeout(400)
async def test_crawl_that_is_resharded_under_faults_is_perfect(tmp_path: Path) -> None:
    """The same while the number of shards changes to 1,024 and back, once with the command killed."""
    options = Options(
        seconds=24,
        kills=4,
        restarts=1,
        stops=1,
        proxy_faults=2,
        changes=2,
        replicas=3,
        domains=30,
        pages=1_200,
        zipf=0.0,
        delay_s=0.4,
        reshards=2,
    )
    found = await run(options, tmp_path, end_limit_s=150)
    assert found.is_perfect, f"{found}\n{found.details()}"
    assert found.faults[Kind.RESHARD] == 2


@pytest.mark.e2e
@pytest.mark.skipif(sys.platform != "linux", reason="the cluster's processes are watched in /proc")
async def test_crawl_on_a_cluster_under_faults_is_perfect(tmp_path: Path) -> None:
    """One master is killed, one hangs, one hands over, one is cut off, slots move and replicas are killed: nothing is lost,
    and only domains on the node of a fault notice it."""
    found = await run_on_cluster(NodeOptions.of_length(30, replicas=3), tmp_path, end_limit_s=300)
    found = replace(found, longest_return_s=LOADED_RETURN_S)
    assert found.is_perfect, f"{found}\n{found.details()}"
    assert found.crawl.open_at_end_of_faults > 0
    assert found.diary.count_nodes().keys() >= OUTAGES
    assert found.diary.count_nodes()[NodeKind.MOVE] > 0
