"""Limits by time, bytes, requests, items and failed URLs end a crawl, within the margin that the settings state, and a
higher one lets it go on."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import CRAWLER, Finished, Running, quick
from tests.site import Reply, Request, Site

pytestmark = pytest.mark.e2e

BODY = 10_000
PAGES_A_SECOND = 45  # at most: the delay is 0.02 s


def respond(request: Request) -> Reply | str | None:
    if request.path.startswith("/broken/"):
        return Reply("gone", 520)
    links = [f'<a href="/{n}">' for n in range(2_000)] + [f'<a href="/broken/{n}">' for n in range(200)]
    return "".join(links) if request.path == "/" else random.Random(request.path).randbytes(BODY // 2).hex()


def crawl(folder: Path, site: Site, limits: dict[str, float], *words: str) -> Finished:
    tables = {"limits": limits, "frontier": {"batch": 4}, "scope": {"sitemaps": False}}
    items = '\n[[extract]]\nname = "urls"\nfields = { url = { page = "url" } }\n'
    (folder / "crawler.toml").write_text(quick(folder, site.host_map("a.test"), **tables) + items)
    command = [*CRAWLER, "crawl", "http://a.test/", "--settings", str(folder / "crawler.toml"), "--quiet", *words]
    return Running(command, folder, f"crawl-{time.monotonic()}", {"CRAWLER_POLITENESS__TRIES": "1"}).wait()


def status(folder: Path) -> dict[str, Any]:
    command = [*CRAWLER, "status", "--data-dir", str(folder / "data"), "--json"]
    found: dict[str, Any] = json.loads(Running(command, folder, f"status-{time.monotonic()}", {}).wait().out)
    return found


@pytest.mark.parametrize(
    ("name", "value", "number", "margin"),
    [
        ("max_time", 3.0, lambda found: found["running_ms"] / 1000, 2.5),
        pytest.param(
            "max_bytes",
            40 * BODY,
            lambda found: found["received_bytes"],
            3.5 * PAGES_A_SECOND * BODY + 120_000,
            marks=pytest.mark.long,
        ),
        ("max_failed", 20, lambda found: found["dead"], 3.5 * PAGES_A_SECOND),
        ("max_requests", 40, lambda found: found["requests"], 3.5 * PAGES_A_SECOND),
        ("max_items", 40, lambda found: sum(found["items"].values()), 3.5 * PAGES_A_SECOND),
    ],
)
def test_a_crawl_ends_at_its_limit(tmp_path: Path, name: str, value: float, number: Any, margin: float) -> None:
    with Site(respond) as site:
        done = crawl(tmp_path, site, {name: value})
        assert done.code == 0, done.err
        assert f"limits.{name} is reached" in done.out
        found = status(tmp_path)
        assert found["open"]
        assert found["condition"]["word"] == "limit reached"
        assert value <= number(found) <= value + margin
        again = crawl(tmp_path, site, {name: value})
        assert f"has reached limits.{name}" in again.err
        assert number(status(tmp_path)) <= number(found) + margin / 2
        raised = 2 * value + margin
        more = crawl(tmp_path, site, {name: raised if name == "max_time" else int(raised)}, "--apply-settings")
        assert more.code == 0, more.err
        assert number(status(tmp_path)) >= 2 * value
