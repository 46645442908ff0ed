"""Known pages of a shard that Redis has lost are visited when they would have been, once `crawler repair` has run."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import redis

from frontier.domains import shard_of
from frontier.entries import Entry, parse_entry
from frontier.keys import CrawlKeys
from frontier.known_pages import KnownPage, pages_in
from tests.e2e.harness import Running, toml, wait_until
from tests.site import Reply, Request, Site
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

SHARDS = 4
KEYS = CrawlKeys("crawl", SHARDS)
DOMAINS = ("site.test", "other.test")
RARE = tuple(f"/rare-{number}" for number in range(90))
"""More pages than one bucket has."""

PATHS = ("/", "/still", "/changing", "/going", "/moving", "/failing", "/never", *RARE)
OFTEN = PATHS[:6]
FIXED = ["match=/never$ never", "match=/rare every=9d", "match=(go|fail)ing$ every=8s"]
FIRST, SECOND = [*FIXED, "every=1s"], [*FIXED, "adaptive min=1s start=1s max=2s"]
"""A page that is gone or fails is forgotten after four minutes, when all is over."""


class ChangingSite(Site):
    """Two domains with the same pages. `statuses`: of paths that have no page."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = dict.fromkeys(PATHS, 1)
        self.statuses: dict[str, int] = {}

    def respond(self, request: Request) -> Reply:
        version = self.versions.get(request.path)
        etag, links = f'"{version}"', "".join(f'<a href="{path}">x</a>' for path in PATHS)
        known = 304 if request.headers["If-None-Match"] == etag else 200
        status = 404 if version is None else self.statuses.get(request.path, known)
        body = f"<title>{request.path} {version}</title>{links if request.path == '/' else ''}"
        headers = {"Location": "/still"} if status == 301 else {"ETag": etag} if status in (200, 304) else {}
        return Reply(body if status == 200 else "", status, headers)

    def times(self, path: str, status: int | None = None, host: str | None = DOMAINS[0]) -> int:
        return super().times(path, status, host)


class Scene(NamedTuple):
    """A crawl of `site` whose queue is on `server`."""

    folder: Path
    site: ChangingSite
    valkey: ValkeyProcess
    server: redis.Redis

    def write_settings(self, rules: list[str]) -> Path:
        path = self.folder / "crawler.toml"
        replica = {
            "data_dir": str(self.folder / "data"),
            "out": str(self.folder / "out"),
            "interval": 0.5,
            "redis": self.valkey.url,
        }
        tables = {
            "politeness": {"delay": 0.02, "response_share": 0},
            "fetch": {"host_map": self.site.host_map(*DOMAINS)},
            "frontier": {"shards": SHARDS},
            "recrawl": {"rules": rules},
            "replica": replica,
        }
        path.write_text(toml(tables))
        return path

    def start(self, *words: str) -> Running:
        options = [] if words[0] == "config" else ["--settings", str(self.folder / "crawler.toml")]
        return Running([sys.executable, "-m", "crawler", words[0], *options, *words[1:]], self.folder, words[0], {})

    def run(self, *words: str) -> str:
        done = self.start(*words).wait()
        assert done.code == 0, done.err
        return done.out

    @contextmanager
    def crawling(self) -> Iterator[None]:
        crawler = self.start("run")
        try:
            yield
        finally:
            crawler.send(signal.SIGTERM)
            done = crawler.wait()
        assert done.code == 0, done.err

    def known(self, domain: str) -> dict[str, KnownPage]:
        """The known pages of a domain that are not queued, by their URLs, which differ."""
        buckets = self.server.hvals(KEYS.shards[shard_of(domain, SHARDS)].known(domain))
        pages = [page for records in buckets for page in pages_in(records, domain)]
        found = {page.entry.url: page for page in pages}
        assert len(found) == len(pages)
        return found

    def queued(self, domain: str) -> list[Entry]:
        key = KEYS.shards[shard_of(domain, SHARDS)].queue(domain)
        return [parse_entry(raw.decode(), domain, 0.0) for raw in self.server.zrange(key, 0, -1)]

    def contents(self) -> dict[bytes, bytes]:
        """All keys of shards."""
        return {key: self.server.dump(key) for key in self.server.scan_iter("{crawl:*}:*")}

    def kill_a_repair(self, passes: int) -> None:
        """Kill a repair when it has read the lines so many times, and once more those of the crawl."""
        other = self.folder / f"other-{passes}"
        other.mkdir()
        pipe = other / "stands-still.pages.jsonl"
        os.mkfifo(pipe)
        repair = self.start("repair", *SEEDS, "--archive", str(self.folder / "out"), "--archive", str(other))
        for _ in range(passes):
            with pipe.open("wb"):
                wait_until(lambda: _has_open(repair.pid, pipe), "the end of the crawl's lines")
            wait_until(lambda: not _has_open(repair.pid, pipe), "the end of the pass")
        with pipe.open("wb"):
            repair.kill()


SEEDS = tuple(f"http://{domain}/" for domain in DOMAINS)


def _has_open(pid: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if descriptor.readlink() == path:
                return True
        except FileNotFoundError:
            pass
    return False


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    (tmp_path / "valkey").mkdir()
    with (
        ChangingSite() as site,
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        redis.Redis(unix_socket_path=str(valkey.socket)) as server,
    ):
        yield Scene(tmp_path, site, valkey, server)


def crawl_until_all_has_happened(scene: Scene) -> None:
    """Pages that change, are gone, have moved, fail, are visited once or never again; and other rules."""
    site = scene.site
    scene.write_settings(FIRST)
    scene.run("seed", *SEEDS)
    with scene.crawling():
        wait_until(lambda: all(site.times(path, 304) for path in OFTEN), "a 304 of each page")
        site.versions["/changing"] = 2
        wait_until(lambda: site.times("/changing", 200) > 1 and site.times("/changing", 304) > 1, "the change")
        scene.run("config", "apply", str(scene.write_settings(SECOND)), "--replace")
        seen = site.times("/still", 304)
        wait_until(lambda: site.times("/still", 304) > seen + 2, "visits by the other rules")
        wait_until(lambda: all(site.times(path, 200, host) for path in PATHS for host in DOMAINS), "all pages")
        site.statuses |= {"/going": 404, "/moving": 301, "/failing": 403}
        awaited = [(path, status, host) for path, status in site.statuses.items() for host in DOMAINS]
        wait_until(lambda: all(site.times(*one) for one in awaited), "the rest")


def lose_one_shard(server: redis.Redis) -> None:
    server.delete(*server.scan_iter(f"{KEYS.shards[shard_of(DOMAINS[0], SHARDS)].base}*"))


def lose_everything(server: redis.Redis) -> None:
    server.flushall()


@pytest.mark.parametrize("lose", [lose_one_shard, lose_everything])
def test_known_pages_of_a_lost_shard_are_visited_when_they_are_due(
    scene: Scene, lose: Callable[[redis.Redis], None]
) -> None:
    # Given a crawl that visits pages again, and has lost a shard,
    crawl_until_all_has_happened(scene)
    known = {domain: scene.known(domain) for domain in DOMAINS}
    waiting = {domain: {entry.url: entry for entry in scene.queued(domain)} for domain in DOMAINS}
    for domain in DOMAINS:
        assert known[domain].keys() | waiting[domain].keys() == {
            f"http://{domain}{path}" for path in PATHS if path != "/never"
        }
    lose(scene.server)
    assert not scene.known(DOMAINS[0])

    # when it is repaired, after two repairs that were killed, before and after they had restored known pages,
    scene.kill_a_repair(passes=0)
    assert not scene.known(DOMAINS[0])
    scene.kill_a_repair(passes=2)
    assert scene.known(DOMAINS[0])
    assert re.search("[14] shards? restored", scene.run("repair", *SEEDS))

    # then all is planned as it was,
    for domain in DOMAINS:
        again = scene.known(domain)
        assert {url: page for url, page in again.items() if url in known[domain]} == known[domain]
        due_then = {url: page for url, page in again.items() if url not in known[domain]}
        queued = {entry.url: entry for entry in scene.queued(domain)}
        assert due_then.keys() | queued.keys() == waiting[domain].keys() and not due_then.keys() & queued.keys()
        for url, page in due_then.items():
            assert page.due_s <= time.time() and page.entry.visit == waiting[domain][url].visit
    before = scene.contents()
    assert "no shard has lost" in scene.run("repair", *SEEDS)
    assert scene.contents() == before

    # and what is due is visited: conditionally, if it was unchanged, and where it is back.
    scene.site.statuses.clear()
    scene.site.answered.clear()
    with scene.crawling():
        for host in DOMAINS:
            wait_until(lambda host=host: scene.site.times("/still", 304, host), "a visit")
            wait_until(lambda host=host: scene.site.times("/going", 200, host), "the page that is back")
            wait_until(lambda host=host: scene.site.times("/changing", 304, host) > 1, "two visits")
    assert not [path for path in scene.site.asked if path in (*RARE, "/never")]
    unchanged = ("/", "/still", "/changing")
    assert not [one.path for one, status in scene.site.answered if one.path in unchanged and status == 200]
    for domain in DOMAINS:
        pages = [*scene.known(domain), *(entry.url for entry in scene.queued(domain))]
        assert sorted(pages) == sorted(known[domain].keys() | waiting[domain].keys())
