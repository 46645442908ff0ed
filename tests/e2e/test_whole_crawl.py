"""An undisturbed crawl fetches exactly what is reachable and allowed, with any number of replicas."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.harness import EVEN, TRIES, Bench, Web, bench, repeated
from tests.simweb.judge import Policy, expect

pytestmark = pytest.mark.e2e


SHARDS = 8
"""Of which each of three replicas owns two at least (1.1 x the fair share is 3 at most), and all but one have domains."""


@pytest.mark.parametrize("replicas", [pytest.param(1, marks=pytest.mark.long), 3])
def test_crawl_fetches_exactly_the_expected_set(tmp_path: Path, replicas: int) -> None:
    """Nothing missing, denied, doubled or too close; a JSON line for each settled URL; WARC files that others accept; and
    replicas that are there from the start all have their part."""
    with Web(tmp_path) as web, bench(tmp_path, web, tables={"frontier": {"shards": SHARDS}}) as crawler:
        running = crawler.crawl() if replicas == 1 else crawler.supervise(replicas)
        done = running.wait()
        assert done.code == 0, done.err
        result = web.verdict()
        assert result.ok, str(result)
        _assert_output_is_whole(crawler)
        assert not list(crawler.out.glob("*.open"))
        writers = {line["replica"] for line in crawler.lines()}
        assert len(writers) == replicas


def _assert_output_is_whole(crawler: Bench) -> None:
    lines = crawler.lines()
    urls = [line["url"] for line in lines]
    # A URL that redirects is requested again when its detour leads back to it.
    assert repeated([line["url"] for line in lines if line["reason"] != "redirect"]) == []
    expected = crawler.web.expected
    assert set(urls) == expected.urls | expected.denied
    files = sorted(map(str, crawler.out.glob("*.warc.gz")))
    assert files
    # warcio sets an attribute that decompressors of Brotli 1.2 do not have; without Brotli it checks the bytes as sent.
    program = "import sys; sys.modules['brotli'] = None; from warcio.cli import main; sys.exit(main(sys.argv[1:]))"
    checked = subprocess.run([sys.executable, "-c", program, "check", *files], capture_output=True, check=False)
    assert (checked.returncode, checked.stdout) == (0, b""), checked


@pytest.mark.parametrize("policy", [Policy(tries=TRIES, sitemaps=False), Policy(tries=TRIES, max_depth=1)])
def test_a_crawl_without_sitemaps_or_to_some_depth_fetches_exactly_the_expected_set(
    tmp_path: Path, policy: Policy
) -> None:
    """Every second domain names a sitemap, and a fifth of its pages are linked from nowhere else."""
    scope = {"sitemaps": policy.sitemaps, **({"max_depth": policy.max_depth} if policy.max_depth else {})}
    features = replace(EVEN, sitemaps=0.5, unlinked=0.2)
    with (
        Web(tmp_path, seed=3, features=features) as web,
        bench(tmp_path, web, tables={"scope": scope}) as crawler,
    ):
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        result = web.verdict(policy)
        assert result.ok, str(result)
        assert web.expected.urls > expect(web.world, web.world.seeds(), policy).urls
