"""A first crawl from an empty folder shows something soon."""

from __future__ import annotations

import pytest

from bench.start import PAGES, start

pytestmark = [pytest.mark.e2e, pytest.mark.timed]


def test_the_first_page_is_requested_soon_and_a_small_crawl_ends_soon() -> None:
    """`bench.start` measures this on an idle machine: 1.5 s and 4 s. The machine may be slower, or busy."""
    runs = []
    for _ in range(3):
        runs.append(start())
        if runs[-1].first_s < 3.0 and runs[-1].end_s < 8.0:
            break
    assert min(run.first_s for run in runs) < 3.0
    assert min(run.end_s for run in runs) < 8.0
    assert {run.pages for run in runs} == {PAGES}
