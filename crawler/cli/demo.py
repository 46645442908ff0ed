"""`crawler demo`: several replicas crawl a toy web on loopback, and the web's request log is checked afterwards.

The web has small sites under .test names. Each is a tree of numbered pages, with some links that do not lead to a page: a
redirect, a page that does not exist, and one that robots.txt denies. Every seventh site asks for a longer delay.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol

import click

from crawler.app.signals import run_until_signal
from crawler.cli import options as option
from crawler.cli.crawl import CrawlJob
from crawler.cli.main import INTERRUPTED
from crawler.cli.text import Terminal
from crawler.errors import UserError
from crawler.settings.load import load
from crawler.sinks.files import check_output_folder
from crawler.wording import count_of

DELAY_S = 0.03
"""Short, so that the demo ends within a minute; the crawl's default is a second."""

TRIES = 4

DEFAULT_OUT = Path("demo-out")

HOST = "127.0.0.1"
CHILDREN = 5
CRAWL_DELAY_S = 0.1
TOLERANCE_S = 0.002
SHOWN = 5
PARAGRAPH = "<p>The otter follows the tide past the fern and the lichen on the basalt.</p>\n" * 20


class Verdict(NamedTuple):
    """What the log of a web says about a crawl."""

    is_perfect: bool
    text: str


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
                "scope": {"kind": "any", "guess_sitemaps": False},
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


# the toy web


class Answer(NamedTuple):
    """The response of a URL. `links`: the URLs that it leads to."""

    status: int
    links: tuple[str, ...] = ()
    body: str = ""
    location: str = ""
    media: str = "text/html; charset=utf-8"


class Request(NamedTuple):
    """A request, in seconds of a monotonic clock: when it had been read, and just before its response was sent. So a gap
    between two requests is never shorter than the client's."""

    url: str
    start: float
    end: float
    status: int


class DemoWeb:
    """`pages` pages on `domains` sites. Listens within `async with`."""

    def __init__(self, domains: int, pages: int, delay_s: float) -> None:
        self._sizes = [pages // domains + (number < pages % domains) for number in range(domains)]
        self._delay_s = delay_s
        self._log: list[Request] = []

    async def __aenter__(self) -> DemoWeb:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def host_map(self) -> list[str]:
        """Where the crawler finds the sites."""
        return [f"*.test={HOST}:{self._server.sockets[0].getsockname()[1]}"]

    def seeds(self) -> list[str]:
        """The root of every site."""
        return [_url(site) for site in range(len(self._sizes))]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                start = time.monotonic()
                host = head.partition("\r\nhost:")[2].partition("\r\n")[0].strip()
                url = f"http://{host}{head.split(' ', 2)[1]}"
                answer = self.answer(url)
                body = answer.body.encode()
                fields = [f"Content-Type: {answer.media}", f"Content-Length: {len(body)}"]
                fields += [f"Location: {answer.location}"] if answer.location else []
                response = "\r\n".join((f"HTTP/1.1 {answer.status} Demo", *fields, "", "")).encode() + body
                self._log.append(Request(url, start, time.monotonic(), answer.status))
                writer.write(response)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            writer.close()

    def answer(self, url: str) -> Answer:
        """What the web says to a request for `url`."""
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

    def judge(self) -> Verdict:
        """Compare the log with what a perfect crawl does."""
        expected = self.expected()
        counts = Counter(request.url for request in self._log)
        pages = {url: count for url, count in counts.items() if not url.endswith("/robots.txt")}
        too_close, shortest_s = self._gaps()
        faults = {
            "missing": [url for url in expected if url not in counts],
            "unexpected": [url for url in pages if url not in expected and "/private/" not in url],
            "denied": [url for url in pages if "/private/" in url],
            "repeated": [url for url, count in pages.items() if count > 1],
            "before robots.txt": self._hasty(),
            "too close": too_close,
        }
        is_perfect = not any(faults.values())
        lines = [
            f"{'OK' if is_perfect else 'NOT OK'}: {count_of(len(self._log), 'request')} to "
            f"{count_of(len(self._sizes), 'domain')}, shortest gap {shortest_s:.4f} s"
        ]
        for name, found in faults.items():
            lines.append(f"  {name:<18} {len(found):>7}")
            lines += [f"      {one}" for one in found[:SHOWN]]
        return Verdict(is_perfect, "\n".join(lines))

    def _gaps(self) -> tuple[list[str], float]:
        """The requests that came too soon after the one before, and the shortest gap between any two on one site."""
        too_close: list[str] = []
        shortest_s = float("inf")
        last: dict[str, Request] = {}
        for request in sorted(self._log, key=lambda request: request.start):
            host = request.url.split("/")[2]
            if host in last:
                asked = CRAWL_DELAY_S if "Crawl-delay" in self.answer(f"http://{host}/robots.txt").body else 0.0
                gap_s = request.start - last[host].end
                shortest_s = min(shortest_s, gap_s)
                if gap_s < max(self._delay_s, asked) - TOLERANCE_S:
                    too_close.append(f"{gap_s:.4f} s: {last[host].url} then {request.url}")
            last[host] = request
        return too_close, shortest_s

    def _hasty(self) -> list[str]:
        """The first URLs of sites whose robots.txt had not been answered before."""
        answered = {request.url: request.end for request in reversed(self._log) if request.url.endswith("/robots.txt")}
        first = {request.url.split("/")[2]: request for request in reversed(self._log) if request.url not in answered}
        return [
            one.url for host, one in first.items() if answered.get(f"http://{host}/robots.txt", one.end) > one.start
        ]


def _url(site: int, path: str = "") -> str:
    return f"http://site{site}.test/{path}"
