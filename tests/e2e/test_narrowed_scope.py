"""Scope settings that are narrowed during a crawl apply to queued URLs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.e2e.harness import CRAWLER, Running, crawling, quick, wait_until
from tests.site import Request, Site

pytestmark = pytest.mark.e2e


def respond(request: Request) -> str:
    links = [f"/cal/{n}" for n in range(400)] + [f"/good/{n}" for n in range(30)]
    return (
        "".join(f'<a href="{link}">x</a>' for link in links)
        if request.path == "/"
        else f"<title>{request.path}</title>"
    )


def test_queued_urls_that_are_excluded_are_denied_without_a_request(tmp_path: Path) -> None:
    """And `why` says so."""

    def run(*words: str) -> str:
        done = Running([*CRAWLER, *words, *store], tmp_path, f"{words[0]}-{next(numbers)}", {}).wait()
        assert done.code == 0, done.err
        return done.out

    numbers, store = iter(range(1_000)), ["--data-dir", str(tmp_path / "data")]
    with Site(respond) as site:
        settings = quick(tmp_path, site.host_map("a.test"))
        with crawling(tmp_path, "http://a.test/", settings):
            wait_until(lambda: site.times("/robots.txt") and len(site.asked) > 40, "forty pages")
            (tmp_path / "narrow.toml").write_text("[scope]\nexclude = ['/cal/']\n")
            run("pause")
            run("config", "apply", str(tmp_path / "narrow.toml"))
            assert "no longer in scope (excluded)" in run("why", "http://a.test/cal/399")
            run("resume")
            applied_at = time.monotonic() + 1.0  # replicas poll every half second here

            def status() -> dict[str, object]:
                found: dict[str, object] = json.loads(run("status", "--json"))
                return found

            wait_until(lambda: status()["open"] == 0, "an empty queue", step_s=0.2)
            assert status()["reasons"]["denied:excluded"] > 300  # type: ignore[index]
            late = [request.path for request, _ in site.answered if request.at > applied_at]  # until the scope is wide
            (tmp_path / "wide.toml").write_text("[scope]\nexclude = []\n")
            run("config", "apply", str(tmp_path / "wide.toml"))
            run("pause")
            assert json.loads(run("dead", "requeue", "--reason", "excluded", "--json"))["requeued"] > 300
            assert "queued" in run("why", "http://a.test/cal/399")
        assert not [path for path in late if path.startswith("/cal/")]
        assert sum(path.startswith("/good/") for path in site.asked) == 30
