"""Response times for operators when the queue is long: each command, page and scrape, with millions of URLs queued.

    python -m bench.operator [--urls 10000000] [--domains 200000] [--shards 1024]

A Valkey is filled through the frontier, as pages would fill it; then each command runs five times within this process (a
process of its own takes longer, for its imports) and each page of one paused replica is asked for five times.
Printed are the slowest and the median in milliseconds, and the server's CPU milliseconds a call. The last result is in
docs/explanation/speed.md, "Response times for operators".
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.crawl import fill
from bench.measure import cpu_s
from crawler.cli.main import main as crawler
from frontier.entries import Entry
from tests.ports import free_port
from tests.valkey import ValkeyProcess

TIMES = 5
LINKS_A_PAGE = 25
KNOWN = "https://www.site-0000007.example/0/some/page.html"
COMMANDS = (
    ["status"],
    ["status", "--json"],
    ["domains"],
    ["domains", "--json"],
    ["shards"],
    ["dead", "list"],
    ["why", KNOWN],
    ["why", "https://nobody.example/"],
    ["delay", "site-0000009.example", "2"],
    ["block", "site-0000008.example"],
    ["pause"],
)
PAGES = ("/", "/snapshot", "/metrics", "/sd", "/healthz", "/domain/site-0000007.example", f"/why?url={KNOWN}")


def entries(count: int, domains: int) -> Iterator[Entry]:
    """`count` URLs, as many of each domain."""
    rng = random.Random(1)
    yield Entry(KNOWN, "site-0000007.example", priority=-1.0)
    for number in range(1, count):
        domain = f"site-{number // LINKS_A_PAGE % domains:07}.example"
        yield Entry(f"https://www.{domain}/{number:x}/{rng.getrandbits(64):x}", domain, priority=-1.0, depth=1)


def typed(words: list[str]) -> None:
    """Run the command `words` in this process, its output thrown away. Ends the benchmark if it fails."""
    told = io.StringIO()
    sys.argv = ["crawler", *words]
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
        try:
            crawler()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
    if code:
        raise SystemExit(f"crawler {' '.join(words)} ended with {code}: {told.getvalue()}")


def show(name: str, ask: Callable[[], object], server: int) -> None:
    """Time `ask` and print what it took."""
    ask()  # caches and connections apart
    before, took = cpu_s(server), []
    for _ in range(TIMES):
        started = time.monotonic()
        ask()
        took.append((time.monotonic() - started) * 1000)
    server_ms = (cpu_s(server) - before) / TIMES * 1000
    print(f"{name:62} {max(took):8.1f} {statistics.median(took):8.1f} {server_ms:8.1f}", flush=True)


@contextlib.contextmanager
def paused_replica(folder: Path, url: str) -> Iterator[str]:
    """A replica that does not crawl, and the address of its pages."""
    address = f"127.0.0.1:{free_port()}"
    words = [sys.executable, "-m", "crawler", "run", "--redis", url, "--listen", address, "--out", str(folder / "out")]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "120"})
    try:
        while True:
            with contextlib.suppress(OSError):
                _get(f"http://{address}/healthz")
                break
            time.sleep(0.1)
        time.sleep(15.0)  # the first survey of counters
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait()


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        body: bytes = answer.read()
        return body


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, default=10_000_000)
    parser.add_argument("--domains", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=1_024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ValkeyProcess(Path(scratch), persistent=False) as valkey:
        started = time.monotonic()
        fill(valkey.url, {}, entries(options.urls, options.domains), options.shards)
        print(f"{options.urls:,} URLs of {options.domains:,} domains queued in {time.monotonic() - started:.0f} s")
        typed(["pause", "--redis", valkey.url])
        print(f"{'':62} {'most ms':>8} {'median':>8} {'server':>8}")
        for words in COMMANDS:
            show(" ".join(words), lambda words=words: typed([*words, "--redis", valkey.url]), valkey.pid)  # type: ignore[misc]
        with paused_replica(Path(scratch), valkey.url) as address:
            for page in PAGES:
                show(page, lambda page=page: _get(address + page), valkey.pid)  # type: ignore[misc]
        status = json.loads(
            subprocess.run(
                [sys.executable, "-m", "crawler", "status", "--json", "--redis", valkey.url],
                capture_output=True,
                check=True,
            ).stdout
        )
        print("queued by the crawl's counters:", status.get("queued"))


if __name__ == "__main__":
    main()
