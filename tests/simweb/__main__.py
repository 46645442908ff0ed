"""Crawl a synthetic web as `crawler demo` crawls its toy web.

    python -m tests.simweb demo --seed 7 --domains 60 --pages 1500 --features mixed --replicas 3

The exit status is 1 if the crawl was not perfect.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from crawler.app.signals import run_until_signal
from crawler.cli.demo import DELAY_S, TRIES, Verdict, crawl_and_judge
from tests.simweb.features import Features
from tests.simweb.judge import JudgeLimits, Policy, expect, judge
from tests.simweb.server import RequestLog, SimWebServer
from tests.simweb.world import World


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simweb", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["demo"])
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--domains", type=int, default=60)
    parser.add_argument("--pages", type=int, default=1500, help="total number of numbered pages of all domains")
    parser.add_argument("--features", default="mixed", choices=["plain", "mixed"])
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--out", type=Path, help="default: demo-out, which is emptied")
    return run_until_signal(_demo(parser.parse_args(argv)))


class _DemoWeb(SimWebServer):
    def seeds(self) -> list[str]:
        return self.world.seeds()

    def judge(self, *_: object) -> Verdict:
        expected = expect(self.world, self.seeds(), Policy(tries=TRIES))
        report = judge(self.log.records, expected, JudgeLimits(delay=DELAY_S))
        return Verdict(report.ok, str(report))


async def _demo(options: argparse.Namespace) -> int:
    world = World(options.seed, options.domains, options.pages, getattr(Features, options.features)())
    async with _DemoWeb(world, RequestLog()) as web:
        return await crawl_and_judge(web, options.replicas, options.out)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
