"""`crawler audit` and `crawler why` on a real crawl."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.harness import DELAY_S, Web, bench

pytestmark = pytest.mark.e2e


def test_a_clean_crawl_passes_its_audit_and_tells_why(tmp_path: Path) -> None:
    """Given a crawl by two replicas, then the audit finds no breach; checked with a longer delay, it does."""
    with Web(tmp_path, domains=8, pages=64) as web, bench(tmp_path, web) as crawler:
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        report = json.loads(crawler.type("audit", str(crawler.out), "--delay", str(DELAY_S), "--json"))
        assert report["requests"] == len(web.records())
        assert "Checked against a delay of 5 s" in crawler.type("audit", str(crawler.out), "--delay", "5", code=1)
        denied = next(line["url"] for line in crawler.lines() if line["outcome"] == "denied")
        told = json.loads(crawler.type("why", denied, "--json"))
        assert (told["where"], told["last"]["outcome"]) == ("settled", "denied")
        fetched = next(line for line in crawler.lines() if line["warc"])
        told = json.loads(crawler.type("why", fetched["url"], "--json"))
        assert told["last"]["warc"]["offset"] == fetched["warc"]["offset"]
        assert told["robots"].startswith("allowed")
        assert "never queued" in crawler.type("why", "https://nowhere.test/")
