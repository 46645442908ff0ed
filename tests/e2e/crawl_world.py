"""Crawls any `World` in a test. The test's event loop serves the web, and the crawler runs as a command."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.harness import LEASE_S, TRIES, Tables, toml
from tests.simweb.judge import JudgeLimits, JudgeReport, Policy, expect, judge
from tests.simweb.server import Record, RequestLog, SimWebServer
from tests.simweb.world import World

DELAY_S = 0.05


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
        code, err = await crawl_from(folder, world.seeds(), server.host_map(), tables, replicas)
    return Crawled(code, err, world, log.records, folder / "out")


async def crawl_from(
    folder: Path, urls: Sequence[str], host_map: list[str], tables: Tables, replicas: int = 1
) -> tuple[int, str]:
    """Crawl from `urls` to the end. Returns the exit code and the standard error of the command."""
    seeds, settings = folder / "seeds.txt", folder / "crawler.toml"
    seeds.write_text("".join(f"{url}\n" for url in urls))
    settings.write_text(toml(_settings(folder, host_map, tables)))
    words = ["crawl", "--settings", str(settings), "-f", str(seeds), "--quiet", "--replicas", str(replicas)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "crawler",
        *words,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1"},
        start_new_session=True,
    )
    try:
        _, err = await process.communicate()
    except BaseException:
        process.terminate()
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, err.decode(errors="replace")


def _settings(folder: Path, host_map: list[str], changes: Tables) -> Tables:
    tables: Tables = {
        "politeness": {"delay": DELAY_S, "backoff_base": 0.2, "response_share": 0, "tries": TRIES},
        "scope": {"kind": "any"},
        "fetch": {"host_map": host_map, "read_timeout": 10.0, "timeout": 20.0},
        "frontier": {"lease": LEASE_S, "shards": 64},
        "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out"), "interval": 0.5, "grace": 5.0},
    }
    for table, keys in changes.items():
        tables[table] = {**tables.get(table, {}), **keys}
    return tables
