"""Sitemaps, followed or not: a crawl fetches exactly what its setting says, and the judge knows both webs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, TRIES, Web, bench
from tests.simweb.judge import Policy, expect

pytestmark = pytest.mark.e2e

LISTED = replace(EVEN, sitemaps=0.5, unlinked=0.2)
"""Every second domain names a sitemap, and a fifth of its pages are linked from nowhere else."""


@pytest.mark.parametrize("followed", [True, False])
def test_pages_that_only_sitemaps_list_are_fetched_if_wanted(tmp_path: Path, followed: bool) -> None:
    with (
        Web(tmp_path, seed=3, domains=16, pages=160, features=LISTED) as web,
        bench(tmp_path, web, tables={"scope": {"sitemaps": followed}}) as crawler,
    ):
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        policies = {on: Policy(tries=TRIES, sitemaps=on) for on in (True, False)}
        expected = {on: expect(web.world, web.world.seeds(), policy).urls for on, policy in policies.items()}
        assert len(expected[True] - expected[False]) > 10
        result = web.verdict(policies[followed])
        assert result.ok, str(result)
