"""`crawler demo`: several replicas crawl a synthetic web on loopback, and the web's request log is checked afterwards."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from crawler.app.run import INTERRUPTED
from crawler.cli.seed_and_run import CrawlJob
from crawler.cli.terminal import Terminal
from crawler.errors import UserError
from crawler.settings.loading import load
from crawler.simweb import Features, JudgeLimits, Policy, World, expect, judge, read_log
from crawler.sinks.output_folder import check_output_folder
from crawler.wording import count_of

SEED = 7
DELAY_S = 0.03
"""Short, so that the demo ends within a minute; the crawl's default is a second."""

TRIES = 4

DEFAULT_OUT = Path("demo-out")


async def run_demo(replicas: int, pages: int, domains: int, out: Path | None) -> int:
    """Serve the synthetic web, crawl it, and check the log. Returns 0 if the crawl was polite and complete. An
    interrupted one is not judged."""
    console = Terminal()
    if pages < domains:
        raise UserError(f"each domain needs at least one page: give --pages {domains}, or fewer --domains")
    check_output_folder(out or DEFAULT_OUT)
    with tempfile.TemporaryDirectory(prefix="peercrawl-demo-") as scratch:
        world = World(SEED, domains, pages, Features.mixed())
        log = Path(scratch) / "requests.jsonl"
        server = await _serve(domains, pages, log)
        try:
            hosts = await _host_map(server)
            folder = _output(out)
            settings = load(
                None,
                {
                    "politeness": {"delay": DELAY_S, "backoff_base": 0.3, "response_share": 0, "tries": TRIES},
                    "scope": {"kind": "any"},
                    "fetch": {"host_map": hosts, "read_timeout": 2.0, "timeout": 5.0},
                    "replica": {"data_dir": Path(scratch) / "data", "out": folder, "interval": 1.0},
                },
            )
            console.print(
                f"a synthetic web of {count_of(domains, 'domain')} on loopback, {count_of(replicas, 'replica')}, "
                f"{DELAY_S} s delay"
            )
            job = CrawlJob("demo", settings, tuple(world.seeds()), (), replicas, show=True)
            code = await job.run()
        finally:
            server.terminate()
            await server.wait()
        if job.stopping.is_set():
            console.print("interrupted, so the result is not judged")
            return INTERRUPTED
        result = judge(read_log(log), expect(world, world.seeds(), Policy(tries=TRIES)), JudgeLimits(delay=DELAY_S))
        quoted = shlex.quote(str(folder))
        console.print("\nthe web's own log says:")
        console.print(str(result))
        console.print(
            f"its output is left, for `crawler audit {quoted}` and `crawler export {quoted}`; other commands need --crawl "
            f"demo and its queue, which `crawler repair --crawl demo --archive {quoted}` makes again",
            soft_wrap=True,
        )
    return code or (0 if result.ok else 1)


def _output(out: Path | None) -> Path:
    """Return the output folder: `out`, or an emptied default folder."""
    if out is not None:
        return out
    shutil.rmtree(DEFAULT_OUT, ignore_errors=True)
    return DEFAULT_OUT


async def _serve(domains: int, pages: int, log: Path) -> asyncio.subprocess.Process:
    words = ["--seed", str(SEED), "--domains", str(domains), "--pages", str(pages), "--features", "mixed"]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "crawler.simweb",
        "serve",
        *words,
        "--log",
        str(log),
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )


async def _host_map(server: asyncio.subprocess.Process) -> list[str]:
    assert server.stdout is not None
    line = await server.stdout.readline()
    if not line:
        raise UserError("the synthetic web did not start; is loopback available?")
    return list(json.loads(line)["host_map"])
