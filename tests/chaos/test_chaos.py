"""The short form of the fault run; `python -m tests.chaos` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.plan import Options
from tests.chaos.run import run


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
    found = await run(options, tmp_path, end_limit_s=90)
    assert found.is_perfect, f"{found}\n{found.details()}"
    assert found.open_at_end_of_faults > 0
