"""`crawler demo`: several replicas crawl a toy web on loopback, and their archive is audited afterwards.

The web has small sites under .test names. Each is a tree of numbered pages, with some links that do not lead to a page: a
redirect, a page that does not exist, and one that robots.txt denies. Every seventh site asks for a longer delay.
"""

from __future__ import annotations

import re
import shlex
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol

import click
import msgspec
from aiohttp import web

from crawler.app.signals import run_until_signal
from crawler.audit.check import Rules, audit
from crawler.audit.records import read_archive
from crawler.cli import options as option
from crawler.cli.crawl import CrawlJob
from crawler.cli.main import INTERRUPTED
from crawler.cli.text import Terminal
from crawler.errors import UserError
from crawler.settings.load import CrawlSettings, load
from crawler.settings.policies import politeness_policy, rate_limit_policy
from crawler.sinks.files import check_output_folder
from crawler.sinks.lines import line_files, lines_in
from crawler.wording import count_of

DELAY_S = 0.03
"""Short, so that the demo ends within a minute; the crawl's default is a second."""

TRIES = 4

DEFAULT_OUT = Path("demo-out")
_OUTPUT = re.compile(r"demo-.+-\d{14}-\d{5}\..+|demo\.(?:settings\.toml|types\.json)")

HOST = "127.0.0.1"
CHILDREN = 5
CRAWL_DELAY_S = 0.1
SHOWN = 5
PARAGRAPH = "<p>The otter follows the tide past the fern and the lichen on the basalt.</p>\n" * 20


class Verdict(NamedTuple):
    is_perfect: bool
    text: str


class Web(Protocol):
    """A web that is being served, and that judges the crawl of it from the output in a folder, or from its own log."""

    def host_map(self) -> list[str]: ...

    def seeds(self) -> list[str]: ...

    def judge(self, out: Path, settings: CrawlSettings) -> Verdict: ...


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
    if pages < domains:
        raise UserError(f"each domain needs at least one page: give --pages {domains}, or fewer --domains")

    async def work() -> int:
        async with DemoWeb(domains, pages) as made:
            return await crawl_and_judge(made, replicas, out)

    sys.exit(run_until_signal(work()))


def remove_output(folder: Path) -> None:
    """Remove what earlier demos have written in `folder`."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if _OUTPUT.fullmatch(path.name):
            path.unlink(missing_ok=True)


async def crawl_and_judge(crawled: Web, replicas: int, out: Path | None) -> int:
    """Crawl `crawled` and print its verdict. Returns 0 if the crawl was perfect. An interrupted one is not judged."""
    console = Terminal()
    folder = out or DEFAULT_OUT
    check_output_folder(folder)
    if out is None:
        remove_output(folder)
    with tempfile.TemporaryDirectory(prefix="peercrawl-demo-") as scratch:
        settings = load(
            None,
            {
                "politeness": {"delay": DELAY_S, "backoff_base": 0.3, "response_share": 0, "tries": TRIES},
                "scope": {"kind": "any", "guess_sitemaps": False},
                "fetch": {"host_map": crawled.host_map(), "read_timeout": 2.0, "timeout": 5.0},
                "replica": {"data_dir": Path(scratch) / "data", "out": folder, "interval": 1.0},
            },
        )
        console.print(
            f"a synthetic web of {count_of(len(crawled.seeds()), 'domain')} on loopback, {count_of(replicas, 'replica')}, "
            f"{DELAY_S} s delay"
        )
        job = CrawlJob("demo", settings, tuple(crawled.seeds()), (), replicas, show=True)
        code = await job.run()
    if job.stopping.is_set():
        console.print("interrupted, so the result is not judged")
        return INTERRUPTED
    verdict = crawled.judge(folder, settings.crawl)
    quoted = shlex.quote(str(folder))
    console.print(f"\n{verdict.text}")
    console.print(
        f"its output is left, for `crawler audit {quoted}` and `crawler export {quoted}`; other commands need --crawl "
        f"demo and its queue, which `crawler repair --crawl demo --archive {quoted}` makes again",
        soft_wrap=True,
    )
    return code or (0 if verdict.is_perfect else 1)


# the toy web


class Answer(NamedTuple):
    """The response of a URL. `links`: the URLs that it leads to."""

    status: int
    links: tuple[str, ...] = ()
    body: str = ""
    location: str = ""
    media: str = "text/html"


class DemoWeb:
    """`pages` pages on `domains` sites. Listens within `async with`."""

    def __init__(self, domains: int, pages: int) -> None:
        self._sizes = [pages // domains + (number < pages % domains) for number in range(domains)]

    async def __aenter__(self) -> DemoWeb:
        self._runner = web.ServerRunner(web.Server(self._serve))
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def host_map(self) -> list[str]:
        return [f"*.test={HOST}:{self._runner.addresses[0][1]}"]

    def seeds(self) -> list[str]:
        return [_url(site) for site in range(len(self._sizes))]

    async def _serve(self, request: web.BaseRequest) -> web.Response:
        answer = self.answer(f"http://{request.host}{request.path_qs}")
        location = {"Location": answer.location} if answer.location else {}
        return web.Response(
            status=answer.status, text=answer.body, content_type=answer.media, charset="utf-8", headers=location
        )

    def answer(self, url: str) -> Answer:
        host, _, path = url.removeprefix("http://").partition("/")
        digits = host.removeprefix("site").removesuffix(".test")
        if not digits.isdecimal() or int(digits) >= len(self._sizes):
            return Answer(404)
        site = int(digits)
        if path == "robots.txt":
            delay = f"Crawl-delay: {CRAWL_DELAY_S}\n" if site % 7 == 6 else ""
            return Answer(200, body=f"User-agent: *\nDisallow: /private/\n{delay}", media="text/plain")
        kind, _, digits = path.partition("-")
        number = int(digits) if digits.isdecimal() else 0
        if (path and not number) or number >= self._sizes[site]:
            return Answer(404)
        if kind in ("", "page"):
            return self._page(site, number)
        return Answer(301, (_url(site),), location="/") if kind == "old" else Answer(404)

    def _page(self, site: int, number: int) -> Answer:
        first = number * CHILDREN + 1
        links = [_url(site, f"page-{child}") for child in range(first, min(first + CHILDREN, self._sizes[site]))]
        links.append(_url((site + number + 1) % len(self._sizes)))
        if number % 10 == 3:
            links += [_url(site, f"{kind}-{number}") for kind in ("old", "missing", "private/page")]
        anchors = "".join(f'<a href="{link}">{link}</a>\n' for link in links)
        title = f"Page {number} of site {site}"
        return Answer(200, tuple(links), f"<!doctype html><title>{title}</title><h1>{title}</h1>{PARAGRAPH}{anchors}")

    def expected(self) -> dict[str, int]:
        """The URLs that a perfect crawl fetches once each, with their statuses."""
        found, queue = dict[str, int](), self.seeds()
        while queue:
            url = queue.pop()
            if url not in found and "/private/" not in url:
                answer = self.answer(url)
                found[url] = answer.status
                queue.extend(answer.links)
        return found

    def judge(self, out: Path, settings: CrawlSettings) -> Verdict:
        expected = self.expected()
        lines = [msgspec.json.decode(line) for path in line_files(out) for line in lines_in(path)]
        done = [(line["url"], line["status"]) for line in lines if line["outcome"] == "done"]
        throttle = politeness_policy(settings).throttle
        report = audit(read_archive(out), Rules(throttle.delay, rate_limit_policy(settings), settings.fetch.user_agent))
        faults = {
            "missing": sorted(expected.items() - {*done}),
            "unexpected": sorted({*done} - expected.items()),
            "repeated": [one for one, count in Counter(done).items() if count > 1],
            "impolite": [(breach.url, breach.detail) for breach in report.breaches],
        }
        is_perfect = not any(faults.values())
        shortest_s = min(report.closest.values(), default=0.0)
        text = [
            f"{'OK' if is_perfect else 'NOT OK'}: {count_of(report.requests, 'request')} to "
            f"{count_of(len(self._sizes), 'domain')}, shortest gap {shortest_s:.4f} s"
        ]
        for name, found in faults.items():
            text.append(f"  {name:<18} {len(found):>7}")
            text += [f"      {url}: {what}" for url, what in found[:SHOWN]]
        return Verdict(is_perfect, "\n".join(text))


def _url(site: int, path: str = "") -> str:
    return f"http://site{site}.test/{path}"
