"""`crawler demo`: several replicas crawl a toy web on loopback, and the web's request log is checked afterwards."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Protocol

import click

from crawler.app.signals import run_until_signal
from crawler.cli import options as option
from crawler.cli.crawl import CrawlJob
from crawler.cli.demo_web import DemoWeb, Verdict
from crawler.cli.exits import INTERRUPTED
from crawler.cli.text import Terminal
from crawler.errors import UserError
from crawler.settings.load import load
from crawler.sinks.output_folder import check_output_folder
from crawler.wording import count_of

DELAY_S = 0.03
"""Short, so that the demo ends within a minute; the crawl's default is a second."""

TRIES = 4

DEFAULT_OUT = Path("demo-out")


class Web(Protocol):
    """A web that is being served, and that judges its own log."""

    def host_map(self) -> list[str]: ...

    def seeds(self) -> list[str]: ...

    def judge(self) -> Verdict: ...


@option.command()
@click.option("--replicas", type=option.Whole(1, 256), default=3, help="Replicas on this machine.")
@click.option("--pages", type=option.Whole(10), default=1_500, help="Pages of the synthetic web.")
@click.option("--domains", type=option.Whole(1), default=60, help="Domains of the synthetic web.")
@click.option("--out", "-o", type=option.FOLDER, help="Folder for WARC files and JSON lines.")
def demo(replicas: int, pages: int, domains: int, out: Path | None) -> None:
    """Crawl a synthetic web on this machine's loopback, in less than a minute and without the internet.

    Example:

        crawler demo --replicas 3
    """
    sys.exit(run_until_signal(run_demo(replicas, pages, domains, out)))


async def run_demo(replicas: int, pages: int, domains: int, out: Path | None) -> int:
    """Serve the toy web, crawl it, and check the log. Returns 0 if the crawl was polite and complete."""
    if pages < domains:
        raise UserError(f"each domain needs at least one page: give --pages {domains}, or fewer --domains")
    async with DemoWeb(domains, pages, DELAY_S) as web:
        return await crawl_and_judge(web, replicas, out)


async def crawl_and_judge(web: Web, replicas: int, out: Path | None) -> int:
    """Crawl `web` and print its verdict. Returns 0 if the crawl was perfect. An interrupted one is not judged."""
    console = Terminal()
    check_output_folder(out or DEFAULT_OUT)
    folder = _output(out)
    with tempfile.TemporaryDirectory(prefix="peercrawl-demo-") as scratch:
        settings = load(
            None,
            {
                "politeness": {"delay": DELAY_S, "backoff_base": 0.3, "response_share": 0, "tries": TRIES},
                "scope": {"kind": "any"},
                "fetch": {"host_map": web.host_map(), "read_timeout": 2.0, "timeout": 5.0},
                "replica": {"data_dir": Path(scratch) / "data", "out": folder, "interval": 1.0},
            },
        )
        console.print(
            f"a synthetic web of {count_of(len(web.seeds()), 'domain')} on loopback, {count_of(replicas, 'replica')}, "
            f"{DELAY_S} s delay"
        )
        job = CrawlJob("demo", settings, tuple(web.seeds()), (), replicas, show=True)
        code = await job.run()
    if job.stopping.is_set():
        console.print("interrupted, so the result is not judged")
        return INTERRUPTED
    verdict = web.judge()
    quoted = shlex.quote(str(folder))
    console.print(f"\nthe web's own log says:\n{verdict.text}")
    console.print(
        f"its output is left, for `crawler audit {quoted}` and `crawler export {quoted}`; other commands need --crawl "
        f"demo and its queue, which `crawler repair --crawl demo --archive {quoted}` makes again",
        soft_wrap=True,
    )
    return code or (0 if verdict.is_perfect else 1)


def _output(out: Path | None) -> Path:
    """Return the output folder: `out`, or an emptied default folder."""
    if out is not None:
        return out
    shutil.rmtree(DEFAULT_OUT, ignore_errors=True)
    return DEFAULT_OUT
