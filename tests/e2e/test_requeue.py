"""URLs that were given up, or denied by the operator's own settings, are fetched after `crawler dead requeue`."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import Running, Tables, wait_until
from tests.e2e.test_start_settings import Folder
from tests.site import Reply, Request, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

LONG: Tables = {"politeness": {"delay": 0.02, "response_share": 0, "tries": 1, "backoff_base": 3_600.0}}
"""The first failure is the last one, and what is stored of it counts for an hour."""


class BrokenSite(Site):
    """Three pages, the first of which links to the others and to `link`. `robots`, `pages`: the status of its robots.txt
    and of its pages; `rules`: the robots.txt, which is sent with status 200 if it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.robots, self.pages = 404, 200
        self.rules = ""
        self.link = ""

    def respond(self, request: Request) -> Reply:
        if request.path == "/robots.txt":
            return Reply(self.rules, 200 if self.rules else self.robots)
        is_root = request.path == "/" and self.pages == 200
        return Reply(f"<a href=/1><a href=/2><a href='{self.link}'>" if is_root else "<p>a page", self.pages)


@pytest.fixture
def site() -> Iterator[BrokenSite]:
    with BrokenSite() as site:
        yield site


@pytest.fixture
def folder(site: BrokenSite, tmp_path: Path, typed: Typed) -> Folder:
    made = Folder(tmp_path, site.port, typed)
    made.write(LONG)
    return made


def crawl(folder: Folder, *words: str) -> None:
    done = folder.type("crawl", "--quiet", "-s", "crawler.toml", *words)
    assert done.code in (0, 1), done.err


def requeued(folder: Folder, *words: str) -> int:
    done = folder.type("dead", "requeue", *words, "--json")
    assert done.code == 0, done.err
    return int(json.loads(done.out)["requeued"])


def test_a_running_replica_fetches_it_again(site: BrokenSite, folder: Folder, tmp_path: Path) -> None:
    """It has the record of the failure in memory, too."""
    site.robots = 500
    assert folder.type("seed", folder.seed, "-s", "crawler.toml").code == 0
    replica = Running([sys.executable, "-m", "crawler", "run"], tmp_path, "replica", {})
    try:
        wait_until(lambda: folder.status["dead"] == 1, "the seed to be given up")
        for _ in range(2):  # the site is still down
            assert requeued(folder, "--all") == 1
            wait_until(lambda: folder.status["dead"] == 1, "the seed to be given up again")
            assert folder.status["accepted"] == 1
        site.robots = 404
        assert requeued(folder, "--reason", "robots_unreachable") == 1
        wait_until(lambda: folder.counts == (3, 0, 0), "the site to be crawled")
    finally:
        replica.send(signal.SIGTERM)
        replica.wait()


def test_urls_denied_for_a_block_are_queued_again(site: BrokenSite, folder: Folder) -> None:
    assert folder.type("seed", folder.seed, "-s", "crawler.toml").code == 0
    assert folder.type("block", "127.0.0.1").code == 0
    crawl(folder)
    assert folder.counts == (0, 1, 0)
    assert folder.type("unblock", "127.0.0.1").code == 0
    shown = json.loads(folder.type("dead", "list", "--json").out)
    assert shown == [{"url": folder.seed, "domain": "127.0.0.1", "reason": "blocked", "requisite": False}]
    assert "denied: blocked" in folder.type("why", folder.seed).out
    assert requeued(folder, "--reason", "forbidden_port") == 0
    assert requeued(folder, "--reason", "blocked") == 1
    crawl(folder)
    assert folder.counts == (3, 0, 0)
    assert "settled: done (ok)" in folder.type("why", folder.seed).out


@pytest.mark.parametrize(
    ("link", "reason"),
    [("http://127.0.0.1:1/", "forbidden_port"), ("http://169.254.169.254/", "forbidden_address")],
)
def test_links_that_the_settings_forbid_are_denied_at_once(
    site: BrokenSite, folder: Folder, link: str, reason: str
) -> None:
    """They do not wait for their robots.txt, which cannot be fetched either, and can be queued again."""
    folder.write({**LONG, "scope": {"kind": "any"}, "fetch": {"allow_private": True, "ports": [80, site.port]}})
    site.link = link
    crawl(folder, folder.seed)
    assert folder.counts == (3, 1, 0)
    assert folder.status["reasons"][f"denied:{reason}"] == 1
    shown = json.loads(folder.type("dead", "list", "--json", "--reason", reason).out)
    assert [one["url"] for one in shown] == [link]


def waiting_crawl(folder: Folder, path: Path) -> Running:
    """A crawl whose only URL waits an hour for its next try."""
    folder.write({"politeness": {"delay": 0.02, "response_share": 0, "backoff_base": 3_600.0}})
    words = ("crawl", folder.seed, "-s", "crawler.toml", "--quiet")
    running = Running([sys.executable, "-m", "crawler", *words], path, "crawl", {})
    wait_until(lambda: "next try in" in " ".join(folder.type("status").out.split()), "the site to have failed")
    return running


@pytest.mark.parametrize("broken", ["robots", "pages"])
def test_a_repaired_site_is_asked_at_once(site: BrokenSite, folder: Folder, tmp_path: Path, broken: str) -> None:
    """By a replica that runs, in the way that the screens advise."""
    setattr(site, broken, 503)
    running = waiting_crawl(folder, tmp_path)
    try:
        shown = " ".join(folder.type("status").out.split())
        assert "next try in" in shown
        setattr(site, broken, 200 if broken == "pages" else 404)
        (advised,) = re.findall(r"if it works again: `crawler (retry \S+)`", shown)
        told = folder.type(*advised.split())
        assert (told.code, told.err) == (0, "")
        assert "when its delay has passed" in " ".join(told.out.split())
        done = running.wait()
        assert done.code == 0, done.err
    finally:
        if running.is_running:
            running.kill()
    assert folder.counts == (3, 0, 0)
