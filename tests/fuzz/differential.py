"""A differential test: what other programs read of odd responses, and this crawler does not.

    python -m tests.fuzz.differential [--cases 10000] [--seed N] [--show "coding: none"]

Each case (`tests.fuzz.odd_responses`) is served to the crawler and to curl, wget, requests, httpx and Scrapy, and to
Chromium if its word may decide. A page that three of them read, and the crawler does not, is a finding; one whose encoding
or media type is odd needs two of those that read characters; a URL of a sitemap needs two of three readers. Of findings
with the same cause, the one with the fewest oddities is shown, with its response. `STRICT` has what stays an error.

PEERS names a Python with requests, httpx and Scrapy, by default `.peers/bin/python` (`.ci/run` makes it).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import Queue
from threading import Thread

from tests.e2e.harness import CRAWLER, ROOT, toml
from tests.fuzz.odd_responses import Case, cases
from tests.observe.web.browser import Browser

PEERS = Path(os.environ.get("PEERS") or ROOT / ".peers/bin/python")

_SAME = "the same URL for us (RFC 3986 6.2.2); a server that insists on its own form redirects to it, and gets it"

STRICT: dict[str, str] = {
    "hop: to CR inside": "a CR counts as a space in all fields (RFC 9110 5.5), and readers differ on what follows it",
    "hop: to tilde": _SAME,
    "hop: to lower escape": _SAME,
    "hop: to escaped slash": _SAME,
    "hop: to escaped letter": _SAME,
}
"""Oddities that stay an error, whatever others make of them, and why."""

AGENT = b"peercrawl"


class Server:
    """Answers for all hosts of `cases`, as their server and as a proxy. `asked`: the URLs that the crawler asked for."""

    def __init__(self, chosen: Sequence[Case]) -> None:
        self._answers = {case.host: case.answer for case in chosen}
        self.asked: set[str] = set()
        self.port = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, KeyError):
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(
                line.lower().split(b": ", 1)[:1] + line.split(b": ", 1)[1:] for line in head.split(b"\r\n")[1:-2]
            )
            host = fields[b"host"].decode().partition(":")[0].rstrip(".")
            target = head.partition(b" ")[2].partition(b" HTTP/")[0]
            if target.startswith(b"http"):
                target = b"/" + target.split(b"/", 3)[3]
            if AGENT in fields.get(b"user-agent", b"").lower():
                self.asked.add(f"http://{host}{target.decode('latin-1')}")
            writer.write(self._answers[host](target, fields.get(b"cookie", b"")))
            await writer.drain()
            writer.write_eof()
            await reader.read()
        writer.close()

    @contextlib.contextmanager
    def serving(self) -> Iterator[None]:
        """Serve from a thread of its own while the block runs."""
        listening, stopping = Queue[int](), asyncio.Event()
        loops = Queue[asyncio.AbstractEventLoop]()

        async def serve() -> None:
            server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=200)
            loops.put(asyncio.get_running_loop())
            listening.put(int(server.sockets[0].getsockname()[1]))
            await stopping.wait()
            server.close()

        thread = Thread(target=asyncio.run, args=(serve(),))
        thread.start()
        self.port = listening.get()
        try:
            yield
        finally:
            loops.get().call_soon_threadsafe(stopping.set)
            thread.join()


def by_crawler(chosen: Sequence[Case], server: Server, folder: Path) -> set[str]:
    """The hosts whose pages the crawler shows in its lines."""
    tables = {
        "politeness": {
            "delay": 0.0,
            "response_share": 0,
            "tries": 1,
            "address_rate_limit": "off",
            "backoff_base": 0.05,
        },
        "fetch": {"host_map": [f"*=127.0.0.1:{server.port}"], "timeout": 10.0, "read_timeout": 5.0},
        "archive": {"text": "text"},
        "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out")},
    }
    (folder / "settings.toml").write_text(toml(tables) + "\n[[requests]]\ncookies = true\n")
    (folder / "seeds").write_text("".join(f"http://{case.host}/\n" for case in chosen))
    words = [*CRAWLER, "crawl", "--file", "seeds", "--settings", "settings.toml", "--quiet"]
    done = subprocess.run(words, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr[-2_000:]
    shown: defaultdict[str, str] = defaultdict(str)
    for path in sorted((folder / "out").rglob("*.pages.jsonl")):
        for line in map(json.loads, path.read_bytes().splitlines()):
            shown[line["url"].split("/")[2]] += f"{line.get('title')}\n{line.get('text')}\n"
    return {case.host for case in chosen if case.words and all(words in shown[case.host] for words in case.words)}


def by_curl(chosen: Sequence[Case], proxy: str, folder: Path) -> set[str]:
    bodies = folder / "curl"
    bodies.mkdir()
    (folder / "curlrc").write_text(
        "".join(f'url = "http://{c.host}/"\noutput = "{bodies}/{c.number}"\n' for c in chosen)
    )
    # In parallel, each transfer has a state of its own: otherwise a bad trailer spoils the chunked bodies behind it.
    words = [
        "curl",
        "--silent",
        "--location",
        "--max-redirs",
        "8",
        "--compressed",
        "--cookie",
        "",
        "--max-time",
        "5",
        "--parallel",
    ]
    words += [
        "--proxy",
        proxy,
        "--write-out",
        "%{urlnum} %{exitcode} %{http_code}\n",
        "--config",
        str(folder / "curlrc"),
    ]
    told = subprocess.run(words, check=False, capture_output=True, text=True).stdout
    read = set()
    for number, code, status in map(str.split, told.splitlines()):
        case = chosen[int(number)]
        if code == "0" and status.startswith("2") and _has(bodies / str(case.number), case):
            read.add(case.host)
    return read


def by_wget(chosen: Sequence[Case], proxy: str, folder: Path) -> set[str]:
    (folder / "wget").mkdir()
    words = ["wget", "--quiet", "--timeout=5", "--tries=1", "--compression=auto", "--force-directories", "--no-hsts"]
    words += [
        "--execute=use_proxy=on",
        f"--execute=http_proxy={proxy}",
        "--execute=robots=off",
        "--input-file=../seeds",
    ]
    subprocess.run(words, cwd=folder / "wget", check=False)
    return {case.host for case in chosen if _has(folder / "wget" / case.host / "index.html", case)}


def _has(path: Path, case: Case) -> bool:
    return path.exists() and all(words.encode() in path.read_bytes() for words in case.words)


async def by_chromium(chosen: Sequence[Case], proxy: str) -> set[str]:
    """The hosts whose pages Chromium shows."""
    read = set()
    async with Browser(f"--proxy-server={proxy}", "--disable-features=HttpsUpgrades,HttpsFirstBalancedMode") as browser:
        for case in chosen:
            failed = (await browser.call("Page.navigate", url=f"http://{case.host}/")).get("errorText")
            for _ in range(0 if failed else 50):
                text = await browser.value(
                    "document.readyState == 'complete' && document.title + document.body?.innerText"
                )
                if text and all(words in text for words in case.words):
                    read.add(case.host)
                    break
                if text:
                    break
                await asyncio.sleep(0.02)
    return read


@dataclass
class Finding:
    """`readers`: who read what the crawler did not. `lost`: of a sitemap, the URLs."""

    case: Case
    readers: list[str]
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [" + ".join(sorted(self.case.odd)), f"read by {', '.join(self.readers)}"]
        if self.lost:
            lines.append(f"lost: {' '.join(self.lost)}")
        lines.append(repr(self.case.answer(b"/sitemap.xml" if self.lost else b"/", b"")[:1_500]))
        return "\n  ".join(lines)


def compare(number: int, seed: int, only: str = "") -> list[Finding]:
    """What is lost among so many cases, or those with the oddity `only`."""
    chosen = [case for case in cases(number, seed) if not only or only in case.odd]
    pages, server = [case for case in chosen if case.words], Server(chosen)
    with tempfile.TemporaryDirectory() as name, server.serving():
        folder, proxy = Path(name), f"http://127.0.0.1:{server.port}"
        ours = by_crawler(chosen, server, folder)
        lost = [case for case in pages if case.host not in ours and STRICT.keys().isdisjoint(case.odd)]
        told = subprocess.run(
            [PEERS, Path(__file__).with_name("peers.py"), proxy],
            input="".join(_line(case) for case in chosen if not case.words or case in lost),
            check=True,
            capture_output=True,
            text=True,
        )
        answers = json.loads(told.stdout)
        read = {name: {url.split("/")[2] for url in urls} for name, urls in answers["pages"].items()}
        (folder / "seeds").write_text("".join(f"http://{case.host}/\n" for case in lost))
        plain = [case for case in lost if not case.needs_text]
        read["curl"], read["wget"] = by_curl(plain, proxy, folder), by_wget(plain, proxy, folder)

        def readers(case: Case) -> list[str]:
            return sorted(name for name, hosts in read.items() if case.host in hosts)

        if shutil.which("chromium"):
            open_cases = [case for case in lost if len(readers(case)) >= (1 if case.needs_text else 2)]
            read["Chromium"] = asyncio.run(by_chromium(open_cases, proxy))
        found = [Finding(case, readers(case)) for case in lost if len(readers(case)) >= (2 if case.needs_text else 3)]
    for case in chosen:
        if not case.words:
            per_reader = [set(urls[f"http://{case.host}/"]) for urls in answers["sitemaps"].values()]
            wanted = {url for urls in per_reader for url in urls if sum(url in others for others in per_reader) > 1}
            if missed := sorted(url for url in wanted - server.asked if url.startswith(f"http://{case.host}/p")):
                found.append(Finding(case, ["readers of sitemaps"], missed))
    return found


def _line(case: Case) -> str:
    url = f"http://{case.host}/"
    line = {"url": url, "words": case.words, "needs_text": case.needs_text, "is_sitemap": not case.words}
    return json.dumps(line) + "\n"


def smallest(found: Sequence[Finding]) -> list[Finding]:
    """The findings whose oddities are not those of another one and more."""
    first = {finding.case.odd: finding for finding in reversed(found)}
    return [finding for odd, finding in first.items() if not any(other < odd for other in first)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", default="", metavar="ODDITY")
    options = parser.parse_args()
    found = compare(options.cases, options.seed, options.show)
    for finding in smallest(found):
        print(finding)
    print(f"{options.cases} cases, {len(found)} lost, of {len(smallest(found))} kinds")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
