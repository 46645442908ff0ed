"""Crawls any `World` in a test. The test's event loop serves the web, and the crawler runs as a command."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.harness import CRAWLER, TRIES, Finished, Running, Tables, short_settings, toml
from tests.simweb.judge import JudgeLimits, JudgeReport, Policy, expect, judge
from tests.simweb.server import Record, RequestLog, SimWebServer
from tests.simweb.world import World


@dataclass(frozen=True, slots=True)
class Crawled:
    """The result of a crawl, and the web's log of it."""

    code: int
    err: str
    world: World
    records: list[Record]
    out: Path

    def verdict(self, limits: JudgeLimits, policy: Policy | None = None) -> JudgeReport:
        """The judge's report."""
        policy = policy or Policy(tries=TRIES)
        return judge(self.records, expect(self.world, self.world.seeds(), policy), limits)


async def crawl(
    folder: Path, world: World, tables: Tables, replicas: int = 1, addresses: Sequence[str] = ("127.0.0.1",)
) -> Crawled:
    """Serve `world` at `addresses` and crawl it from all its roots. `tables`: changes to what suits a short test."""
    log = RequestLog()
    async with SimWebServer(world, log, addresses) as server:
        done = await asyncio.to_thread(crawl_from, folder, world.seeds(), server.host_map(), tables, replicas)
    return Crawled(done.code, done.err, world, log.records, folder / "out")


def crawl_from(folder: Path, urls: Sequence[str], host_map: list[str], tables: Tables, replicas: int = 1) -> Finished:
    """Crawl from `urls` to the end."""
    seeds, settings = folder / "seeds.txt", folder / "crawler.toml"
    seeds.write_text("".join(f"{url}\n" for url in urls))
    settings.write_text(toml(short_settings(folder, host_map, tables)))
    words = ["crawl", "--settings", str(settings), "-f", str(seeds), "--quiet", "--replicas", str(replicas)]
    return Running([*CRAWLER, *words], folder, "crawl", {}).wait()
