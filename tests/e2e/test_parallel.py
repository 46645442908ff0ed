"""Several requests to a domain at once: only without a delay, never more than allowed, and none is lost."""

from __future__ import annotations

import asyncio
import time
from asyncio import StreamReader, StreamWriter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.crawl_world import crawl, crawl_from
from tests.e2e.harness import EVEN, TRIES, Tables, Web, bench
from tests.e2e.victims import kill
from tests.simweb.features import Features, Kind, RobotsKind
from tests.simweb.judge import JudgeLimits, Policy, expect, judge
from tests.simweb.world import World
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

SLOW: Features = replace(EVEN, answers={Kind.SLOW: 1.0}, slow_s=0.2, robots={})
"""Pages that take 0.2 s, which is enough for a crawler to start every request that it may."""


def in_parallel(parallel: int, delay_s: float = 0.0) -> Tables:
    return {"politeness": {"parallel": parallel, "delay": delay_s}}


@pytest.mark.parametrize("parallel", [1, 4])
async def test_a_domain_without_a_delay_has_its_lanes_and_no_more(tmp_path: Path, parallel: int) -> None:
    """Given slow sites without a delay, when they are crawled with `parallel` requests at once, then each has so many
    requests in flight at once at some time, and never more; with 4, 24 pages of 0.2 s take a quarter of the time."""
    done = await crawl(tmp_path, World(3, domains=2, pages=48, features=SLOW), in_parallel(parallel))
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(in_flight=parallel))
    assert result.ok, str(result)
    assert set(result.peak_by_domain.values()) == {parallel}


async def test_a_domain_with_a_delay_has_one_lane(tmp_path: Path) -> None:
    """The delay wins over `parallel`, and the log says that it has no effect."""
    world = World(3, domains=4, pages=40, features=replace(SLOW, slow_s=0.05))
    done = await crawl(tmp_path, world, in_parallel(4, delay_s=0.05))
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(delay=0.05))
    assert result.ok, str(result)
    assert "politeness.parallel = 4 has no effect" in done.err


async def test_a_crawl_delay_leaves_one_lane(tmp_path: Path) -> None:
    """Given hosts with a Crawl-delay, then no request to them overlaps with another to their domain."""
    features = replace(SLOW, slow_s=0.05, robots={RobotsKind.DELAY: 0.5}, crawl_delay_s=0.1, several_hosts=0.5)
    done = await crawl(tmp_path, World(5, domains=12, pages=120, features=features), in_parallel(4))
    assert done.code == 0, done.err
    result = done.verdict(JudgeLimits(in_flight=4))
    delayed = expect(done.world, done.world.seeds(), Policy(tries=TRIES)).crawl_delays
    peaks = {domain: peak for domain, peak in result.peak_by_domain.items() if domain not in delayed}
    assert delayed
    assert max(peaks.values()) > 1
    assert result.ok, str(result)


def test_kill_in_mid_flight_loses_nothing(tmp_path: Path) -> None:
    """One of two replicas, each with several requests to a domain in flight, is killed. All are fetched again."""
    (tmp_path / "valkey").mkdir()
    tables: Tables = {**in_parallel(4), "frontier": {"lease": 2.0}}
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        Web(tmp_path, seed=3, domains=8, pages=480, features=SLOW) as web,
        bench(tmp_path, web, valkey.url, tables) as crawler,
    ):
        web.stop_at(100)
        first, second = crawler.gather(2)
        with web.stopped():
            victim = kill(first.pid)
        done = second.wait()
        assert done.code == 0, done.err
        repeats = web.repeats()
        assert [record.url for record in repeats if not victim.explains(record)] == []
        result = judge(web.records(), web.expected, JudgeLimits(in_flight=4, repeats=len(repeats)))
        assert result.ok, str(result)
        assert set(result.peak_by_domain.values()) == {4}


REST_S = 2


class Overloaded:
    """A site that does not respond until four pages are requested at once, then sends 429 to each in turn, and then
    responds normally. `asked`: (path, seconds) of each page; `peak`: most requests at once after the first response."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.told_at = 0.0  # when the first 429 left
        self.peak = self._now = self._refused = 0
        self._full = asyncio.Event()

    async def serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while True:
                path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
                writer.write(await self._answer(path))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str) -> bytes:
        if path == "/robots.txt":
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        self.asked.append((path, time.monotonic()))
        if path == "/":
            return _ok("".join(f'<a href="/{number}">{number}</a>' for number in range(12)))
        if self.told_at:
            return await self._answer_well()
        if len(self.asked) == 1 + 4:
            self._full.set()
        await self._full.wait()
        self._refused += 1
        await asyncio.sleep(0.05 * self._refused)
        self.told_at = self.told_at or time.monotonic()
        return b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %d\r\nContent-Length: 0\r\n\r\n" % REST_S

    async def _answer_well(self) -> bytes:
        self._now += 1
        self.peak = max(self.peak, self._now)
        await asyncio.sleep(0.02)
        self._now -= 1
        return _ok("")


def _ok(text: str) -> bytes:
    body = f"<!DOCTYPE html><p>page {text}".encode()
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


async def test_a_429_stops_all_lanes(tmp_path: Path) -> None:
    """Given four requests in flight, when they get 429, then no request is made before the backoff is over, and then one
    page is fetched at a time."""
    site = Overloaded()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    code, err = await crawl_from(tmp_path, ["http://a.test/"], [f"*.test=127.0.0.1:{port}"], in_parallel(4))
    server.close()
    assert code == 0, err
    assert {path for path, _ in site.asked} == {"/", *(f"/{number}" for number in range(12))}
    assert len(site.asked) == 1 + 4 + 12
    assert min(at for _, at in site.asked[5:]) >= site.told_at + REST_S
    assert site.peak == 1
