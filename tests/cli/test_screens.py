"""What a user reads in a terminal of 80 columns: `top`, `status`, and the display of `crawl`."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from itertools import count
from pathlib import Path

import msgspec
import pytest

from crawler.cli.screens import alerts
from crawler.observe.health import HealthRecord
from crawler.observe.status import NOTHING_LEFT, Condition
from frontier.crawls import Crawl
from frontier.domains import shard_of
from frontier.peers import Health
from frontier.store import RedisStore
from tests.cli.conftest import Hand
from tests.cli.screen import Screen
from tests.site import Reply, Request, Site
from tests.typed import Typed
from tests.valkey import ValkeyProcess

ADDRESS = "crawler-17.example.internal:29410"


def record(replica: str, index: int, **more: object) -> HealthRecord:
    return HealthRecord(replica, ADDRESS, 9, index, 2, 1, 10, 99, 2.5, 50.0, False, **more)  # type: ignore[arg-type]


def report(hand: Hand, *records: HealthRecord) -> None:
    """Write health records as replicas do."""

    async def write(store: RedisStore, crawl: Crawl) -> None:
        for one in records:
            await Health(store, crawl.keys.peers, ttl_s=60).report(one.replica, msgspec.json.encode(one))

    hand.with_store(write)


def top(hand: Hand, folder: Path) -> Screen:
    return Screen(folder, "top", "--every", "0.2", "--crawl", hand.crawl, "--redis", hand.url)


def test_q_ends_top_and_restores_the_terminal(hand: Hand, tmp_path: Path) -> None:
    with top(hand, tmp_path) as screen:
        screen.wait_for("q: quit")
        screen.press("xq")
        assert screen.wait() == 0
        assert b"\x1b[?1049l" in screen.raw  # it has left the alternate screen


def test_commands_in_messages_name_the_crawl() -> None:
    """Unless it is the one that is meant without a name."""
    found = Condition("running", "warn", [NOTHING_LEFT])
    told = [line for name in ("news", "crawl") for line in alerts(found, True, f"--crawl {name}")]
    assert [str(line).rpartition("until ")[2] for line in told] == ["`crawler stop --crawl news`", "`crawler stop`"]


def test_no_address_is_cut_off_at_80_columns(hand: Hand, tmp_path: Path) -> None:
    report(hand, record("a-machine-with-a-long-name-3a08ca74", 1), record("r2", 2))
    with top(hand, tmp_path) as screen:
        assert max(map(len, screen.wait_for(f"http://{ADDRESS}/", "running").splitlines())) <= 80
    words = ("status", "--crawl", hand.crawl, "--redis", hand.url)
    with Screen(tmp_path, *words) as screen:
        assert screen.wait() == 0
        assert screen.text.count(f"http://{ADDRESS}/") == 2


def test_a_crawl_without_a_replica_is_not_running(hand: Hand) -> None:
    for command in (["status"], ["top", "--once"]):
        shown = hand.type(*command)
        assert "no replica" in shown
        assert "running" not in shown
        assert f"crawler run --crawl {hand.crawl} --redis {hand.url}" in " ".join(shown.split())


def test_no_shard_is_owned_while_no_replica_runs(hand: Hand) -> None:
    def owned() -> str:
        return hand.type("top", "--once").partition("shards, ")[2].split("\n")[0].strip()

    assert owned() == "none owned"
    report(hand, record("r1", 1))
    assert owned() != "none owned"


def test_a_crawl_that_is_joined_does_not_continue(hand: Hand, typed: Typed) -> None:
    """In a crawl of its own, whose only URL is refused at once."""
    joined = Hand(hand.url, f"{hand.crawl}-joined")
    place = ("--crawl", joined.crawl, "--redis", joined.url)
    own = {
        "CRAWLER_FETCH__ALLOW": '["127.0.0.1"]',
        "CRAWLER_FETCH__PORTS": "[1]",
        "CRAWLER_POLITENESS__TRIES": "1",
    }
    assert typed("seed", "http://127.0.0.1:1/", *place, environment=own).code == 0
    report(joined, record("r1", 1))
    done = typed("crawl", "--quiet", *place, environment=own)
    told = f"crawl {joined.crawl} is being crawled by 1 replica already; this command adds more\n"
    assert (told in done.err, "continues" in done.err) == (True, False), done.err


def test_paused_and_stopped_are_shown_with_what_to_do(hand: Hand) -> None:
    report(hand, record("r1", 1))
    hand.type("pause")
    assert "paused" in hand.type("status")
    assert f"crawler resume --crawl {hand.crawl}" in hand.type("top", "--once")
    hand.type("stop")
    assert "stopping" in hand.type("status")

    async def leave(store: RedisStore, crawl: Crawl) -> None:
        await Health(store, crawl.keys.peers, ttl_s=60).withdraw("r1")

    hand.with_store(leave)
    shown = hand.type("status")
    assert "stopped" in shown
    assert "crawler resume" in shown  # `crawler run` alone would end at once
    assert shown.index("crawler resume") < shown.index("crawler run")
    assert hand.json("status")["condition"]["word"] == "stopped"


def test_blocked_domains_and_delays_are_listed(hand: Hand) -> None:
    hand.type("block", "a.test")
    hand.type("delay", "b.test", "7")
    for command in (["status"], ["top", "--once"]):
        shown = " ".join(hand.type(*command).split())
        assert "blocked a.test" in shown
        assert "delays b.test 7 s" in shown
    assert hand.json("status")["rules"] == [
        {"domain": "a.test", "delay_s": None},
        {"domain": "b.test", "delay_s": 7.0},
    ]


def test_an_obstacle_of_all_replicas_blocks_the_crawl(hand: Hand) -> None:
    report(hand, record("r1", 1, blocked="cannot write output: no space"), record("r2", 2))
    shown = hand.type("status")
    assert "running" in shown
    assert "replica 1: cannot write output: no space" in shown
    report(hand, record("r2", 2, blocked="cannot write output: no space"))
    shown = hand.type("top", "--once")
    assert "blocked" in shown
    assert "replicas 1, 2: cannot write output: no space" in shown


def test_top_says_how_old_its_data_are_while_redis_is_away(tmp_path: Path) -> None:
    with ValkeyProcess(tmp_path, persistent=True) as valkey:
        hand = Hand(valkey.url, "news")
        hand.type("seed", "https://a.test/")
        with top(hand, tmp_path) as screen:
            screen.wait_for("no replica")
            valkey.kill()
            screen.wait_for("Redis away", "s old")
            screen.forget()
            screen.wait_for("queued 1", "s old")  # the last data stay
            valkey.start()
            screen.forget()
            screen.wait_for("no replica")


# `crawl`

SINK = """
from pathlib import Path
from crawler.errors import SinkFull

class Full:
    def __init__(self, context):
        self.room = context.folder.parent / "room"

    async def start(self): ...

    async def write(self, pages, exchanges=()):
        if not self.room.exists():
            raise SinkFull("no space left on the test's disk")

    async def stop(self): ...
"""


def one_page(request: Request) -> str | None:
    return "ok" if request.path == "/" else None


@pytest.mark.e2e
def test_a_full_disk_stays_on_the_screen_until_there_is_room(tmp_path: Path) -> None:
    """Given a disk without room, then the display names it in each frame, the log line stays above the display, and the
    crawl ends once there is room."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "full_disk.py").write_text(SINK)
    with Site(one_page) as site:
        (tmp_path / "c.toml").write_text(
            f'[fetch]\nhost_map = ["*.test=127.0.0.1:{site.port}"]\n[archive]\nsinks = ["full_disk:Full"]\n'
        )
        words = ("crawl", "http://a.test/", "-s", "c.toml", "--out", "out")
        with Screen(tmp_path, *words, path=str(tmp_path / "path")) as screen:
            screen.wait_for(
                "sink_blocked", "blocked", "replica 1: cannot write output: no space left on the test's disk"
            )
            for _ in range(2):
                screen.forget()
                screen.wait_for("cannot write output: no space left on the test's disk")
            (tmp_path / "room").touch()
            assert screen.wait() == 0
            assert "cannot write" not in screen.text.rpartition("this run")[2]


@pytest.mark.e2e
def test_a_crawl_says_from_the_first_failure_on_what_it_waits_for(tmp_path: Path) -> None:
    """Given a site whose robots.txt answers 503, then the display says so, and when it is tried again. `status` and `top`
    count its domain as resting, not as due."""
    with Site(lambda _: Reply(status=503)) as site:
        words = ("crawl", site.url, "--allow", "127.0.0.1", "--port", str(site.port))
        with Screen(tmp_path, *words, columns=120) as screen:
            screen.wait_for("robots.txt of http://127.0.0.1:", "is unreachable (http_503), next try in")
            for command in (["status"], ["top", "--once"]):
                with Screen(tmp_path, *command, columns=120) as other:
                    assert other.wait() == 0
                    assert "domains due 0" in other.text
                    assert re.search(r"resting 1, next in \d+", other.text)
                    assert "is unreachable (http_503), next try in" in other.text


class HeldBack(Site):
    """A site whose page is answered once it is `released`."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def respond(self, request: Request) -> str | None:
        if request.path == "/":
            self.released.wait()
        return one_page(request)


@pytest.mark.e2e
def test_a_crawl_says_how_old_its_data_are_while_redis_is_away(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with (
        ValkeyProcess(tmp_path / "data", persistent=True) as valkey,
        HeldBack() as site,
    ):
        settings = (
            f'[fetch]\nhost_map = ["*.test=127.0.0.1:{site.port}"]',
            "[replica]\ninterval = 1.0",
            "[politeness]\nresponse_share = 0",
        )
        (tmp_path / "c.toml").write_text("\n".join(settings))
        words = ("crawl", "http://a.test/", "-s", "c.toml", "--redis", valkey.url)
        with Screen(tmp_path, *words) as screen:
            screen.wait_for("leased 1")
            valkey.kill()
            screen.wait_for("waiting for Redis; the data below are")
            screen.forget()
            screen.wait_for("waiting for Redis; the data below are")  # stays
            valkey.start()
            screen.wait_until_gone("waiting for Redis", "crawl crawl")
            site.released.set()
            assert screen.wait() == 0


@pytest.mark.e2e
@pytest.mark.long
def test_a_killed_replica_stays_on_the_screen(tmp_path: Path) -> None:
    """Given a display with several replicas, when one is killed, then a line above the display says so and stays there."""
    with HeldBack() as site:
        words = ("crawl", site.url, "--allow", "127.0.0.1", "--port", str(site.port), "--replicas", "2")
        with Screen(tmp_path, *words, columns=100) as screen:
            screen.wait_for("leased 1")
            os.kill(replicas_of(screen.pid)[0], signal.SIGKILL)
            screen.wait_for("replica_killed signal=SIGKILL result=another one is started")
            screen.wait_for_updates(3, "domains due")
            assert [line for line in screen.lines if "replica_killed" in line]
            site.released.set()
            assert screen.wait() == 0


def replicas_of(supervisor: int) -> list[int]:
    """The processes of replicas that the process `supervisor` has started."""
    found = subprocess.run(["pgrep", "-P", str(supervisor), "-f", "--", "--when-told"], capture_output=True, check=True)
    return [int(line) for line in found.stdout.split()]


def one_of_each_shard(shards: int) -> list[str]:
    """A domain of each shard, so that a replica that owns a shard owns a domain."""
    domains: dict[int, str] = {}
    for domain in (f"d{number}.test" for number in count()):
        domains.setdefault(shard_of(domain, shards), domain)
        if len(domains) == shards:
            break
    return list(domains.values())


@pytest.mark.e2e
def test_a_replica_that_waits_for_page_permits_says_so(tmp_path: Path) -> None:
    """Given a limit of one page and two replicas, then one of them waits while the other fetches the page, which is not
    answered before."""
    with HeldBack() as site:
        settings = (
            f'[fetch]\nhost_map = ["*.test=127.0.0.1:{site.port}"]\ntimeout = 120\nread_timeout = 120',
            "[frontier]\nshards = 8",
        )
        (tmp_path / "c.toml").write_text("\n".join(settings))
        seeds = [f"http://{domain}/" for domain in one_of_each_shard(8)]
        words = ("crawl", *seeds, "-s", "c.toml", "--max-pages", "1", "--replicas", "2")
        with Screen(tmp_path, *words) as screen:
            try:
                screen.wait_for("waits for page permits, which other replicas hold")
            finally:
                site.released.set()
            assert screen.wait() == 0
            assert "--max-pages 2 --apply-settings" in " ".join(screen.text.split())
