"""Serve a synthetic web, list its roots, judge a log of it, or crawl it as `crawler demo` crawls its toy web.

    python -m tests.simweb serve --seed 1 --domains 50 --pages 1000 --features mixed --log FILE
    python -m tests.simweb seeds --seed 1 --domains 50 --pages 1000 --features mixed
    python -m tests.simweb judge --seed 1 --domains 50 --pages 1000 --features mixed --log FILE --delay 1

    python -m tests.simweb demo --seed 7 --domains 60 --pages 1500 --features mixed --replicas 3

`serve` is the default. It prints one JSON line when it is ready (addresses, host_map, pid) and runs until
SIGTERM or SIGINT. The exit status of `judge` and `demo` is 1 if the crawl was not perfect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path

from crawler.app.signals import run_until_signal
from crawler.cli.demo import DELAY_S, TRIES, Verdict, crawl_and_judge
from tests.simweb.features import Features
from tests.simweb.judge import JudgeLimits, Policy, expect, judge
from tests.simweb.server import RequestLog, SimWebServer, read_log
from tests.simweb.world import World


def main(argv: list[str]) -> int:
    """Run the command in the arguments. Returns the exit status."""
    if not argv or (argv[0].startswith("-") and argv[0] not in ("-h", "--help")):
        argv = ["serve", *argv]
    options = _parser().parse_args(argv)
    world = World(options.seed, options.domains, options.pages, Features.named(options.features))
    if options.command == "serve":
        asyncio.run(_serve(world, options))
        return 0
    if options.command == "seeds":
        sys.stdout.writelines(f"{url}\n" for url in world.seeds())
        return 0
    if options.command == "demo":
        return run_until_signal(_demo(world, options))
    return _judge(world, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simweb",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("serve", "seeds", "judge", "demo"):
        command = commands.add_parser(name)
        command.add_argument("--seed", type=int, default=1)
        command.add_argument("--domains", type=int, default=50)
        command.add_argument("--pages", type=int, default=1000, help="total number of numbered pages of all domains")
        command.add_argument("--features", default="plain", help="plain, mixed or hostile")
        if name in ("serve", "judge"):
            command.add_argument("--log", type=Path, required=name == "judge", help="file of JSON lines")
    serve, check, shown = (commands.choices[name] for name in ("serve", "judge", "demo"))
    serve.add_argument("--address", action="append", help="loopback address; may be repeated")
    serve.add_argument("--port", type=int, default=0, help="0: a free one")
    check.add_argument("--delay", type=float, default=1.0, help="seconds the crawl was told to wait")
    check.add_argument("--tries", type=int, default=Policy().tries, help="requests for a URL at most")
    check.add_argument("--sitemaps", action=argparse.BooleanOptionalAction, default=True, help="sitemaps are followed")
    check.add_argument("--max-depth", type=int, help="links from a seed at most")
    check.add_argument("--repeats", type=int, default=0, help="repeated requests to allow")
    check.add_argument("--seeds", type=Path, help="file with one URL per line; default: the roots of all domains")
    shown.set_defaults(seed=7, domains=60, pages=1500, features="mixed")
    shown.add_argument("--replicas", type=int, default=3)
    shown.add_argument("--out", type=Path, help="default: demo-out, which is emptied")
    return parser


async def _serve(world: World, options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    log = RequestLog(options.log, keep=False)
    try:
        async with SimWebServer(world, log, options.address or ["127.0.0.1"], options.port) as server:
            ready = {"addresses": server.listening, "host_map": server.host_map(), "pid": os.getpid()}
            sys.stdout.write(json.dumps(ready) + "\n")
            sys.stdout.flush()
            await stopping.wait()
    finally:
        log.close()


class _DemoWeb(SimWebServer):
    def seeds(self) -> list[str]:
        return self.world.seeds()

    def judge(self) -> Verdict:
        expected = expect(self.world, self.seeds(), Policy(tries=TRIES))
        report = judge(self.log.records, expected, JudgeLimits(delay=DELAY_S))
        return Verdict(report.ok, str(report))


async def _demo(world: World, options: argparse.Namespace) -> int:
    async with _DemoWeb(world, RequestLog()) as web:
        return await crawl_and_judge(web, options.replicas, options.out)


def _judge(world: World, options: argparse.Namespace) -> int:
    seeds = options.seeds.read_text(encoding="utf-8").split() if options.seeds else world.seeds()
    policy = Policy(tries=options.tries, max_depth=options.max_depth, sitemaps=options.sitemaps)
    limits = JudgeLimits(delay=options.delay, repeats=options.repeats)
    result = judge(read_log(options.log), expect(world, seeds, policy), limits)
    sys.stdout.write(f"{result}\n")
    return 0 if result.ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
