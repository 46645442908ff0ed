"""How a crawl reports its end: the exit code, what to do about the rest, and a rate of the time in which it ran."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Finished
from tests.e2e.test_requeue import BrokenSite
from tests.e2e.test_start_settings import Folder
from tests.typed import Typed

pytestmark = pytest.mark.e2e

FAST = ("--delay", "0.02", "--quiet")


@pytest.fixture
def site() -> Iterator[BrokenSite]:
    with BrokenSite() as site:
        yield site


def crawl(folder: Folder, *words: str, **environment: str) -> Finished:
    return folder.type("crawl", *words, *FAST, **environment)


@pytest.mark.parametrize("why", ["refused", "robots", "404"])
def test_a_crawl_whose_seeds_all_failed_ends_with_an_error(
    site: BrokenSite, tmp_path: Path, typed: Typed, why: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        closed_port = unused.getsockname()[1]
    if why == "404":
        site.pages = 404
    else:
        site.rules = "User-agent: *\nDisallow: /"
    folder = Folder(tmp_path, closed_port if why == "refused" else site.port, typed)
    folder.write({"politeness": {"delay": 0.02, "tries": 1}})
    done = folder.type("crawl", folder.seed, "-s", "crawler.toml", "--quiet")
    assert done.code == 1, done.err
    assert done.err.splitlines()[-1].startswith("error: no page was fetched successfully, and nothing is left")
    again = folder.type("crawl", folder.seed, "-s", "crawler.toml", "--quiet")
    assert (again.code, "nothing left to crawl" in again.err) == (0, True), again.err


def test_the_advice_at_the_page_limit_continues_the_crawl(site: BrokenSite, tmp_path: Path, typed: Typed) -> None:
    """The rate does not count the time between two runs."""
    mapped = ("http://a.test/", "--host-map", f"a.test=127.0.0.1:{site.port}", "--max-pages")
    folder = Folder(tmp_path, site.port, typed)
    done = crawl(folder, *mapped, "2")
    ended_at = time.monotonic()
    assert done.code == 0, done.err
    advice = re.search(r"max_pages = 2 is reached: to continue, .* such as (--max-pages 4 --apply-settings)", done.out)
    assert advice is not None, done.out
    began_ms = folder.status["first_ms"]
    gap_s = time.monotonic() - ended_at
    done = crawl(folder, *mapped, "2", *advice[1].split())
    assert done.code == 0, done.err
    assert "is reached" not in done.out
    found = folder.status
    assert folder.counts == (3, 0, 0)
    rated_s = re.search(r"over ([\d.]+) s", done.out)
    assert rated_s is not None, done.out
    assert float(rated_s[1]) < (found["last_ms"] - began_ms) / 1000 - gap_s + 0.1
