"""`crawler audit` and `crawler why` on a real crawl."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import DELAY_S, EVEN, Web, bench

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


def test_a_repair_without_settings_and_an_audit_elsewhere_find_those_of_the_crawl(tmp_path: Path) -> None:
    """Redis has lost the crawl, whose delay is shorter than the default. Its settings are beside its output, and another
    one is in the environment."""
    typed = [sys.executable, "-m", "crawler"]
    contact = {"CRAWLER_FETCH__CONTACT": "https://example.org/bot"}
    environment = {**os.environ, **contact, "CRAWLER_REPLICA__DATA_DIR": str(tmp_path / "data"), "COLUMNS": "200"}

    def ask(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*typed, *words], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    with Web(tmp_path, domains=3, pages=24, features=EVEN) as web, bench(tmp_path, web) as crawler:
        assert crawler.crawl("--max-pages", "8").wait().code == 0
        shutil.rmtree(tmp_path / "data")
        out = os.path.relpath(crawler.out, tmp_path)
        judged = ask("audit", out)
        assert judged.returncode == 0, judged.stdout
        assert f"a delay of {DELAY_S:g} s, as {out}/crawl.settings.toml has it" in " ".join(judged.stdout.split())
        repaired = ask("repair", web.world.seeds()[0], "--archive", out)
        assert repaired.returncode == 0, repaired.stderr
        assert f"again with the settings in {out}/crawl.settings.toml" in " ".join(repaired.stderr.split())
        assert ask("audit", out).returncode == 0
        shown = json.loads(ask("config", "show", "--json").stdout)
        assert (shown["politeness"]["delay"], shown["limits"]["max_pages"]) == (DELAY_S, 8)
