"""A hostile server against a live replica: fuzzing through sockets, from the first byte of a response to the files.

    python -m tests.fuzz.live [--responses 200000] [--seed N]

A server sends random replies (`tests.fuzz.replies`) on thousands of domains to one replica, which crawls them to the end.
Both are processes of their own. The replica is judged as a process: it must not end by itself, its event loop must not be
late by its own doing, its memory must stay within bounds, each URL must be settled once and have one line, every record
must be readable, and nothing may be settled as a defect. Ends with 1 if one of these does not hold.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from crawler.settings.load import Settings, load
from crawler.sinks.reader import read_head, records_in
from tests.fuzz.replies import End, reply, unrequested
from tests.hostile import crawl_to_the_end

PAGES_EACH = 50
"""URLs of a domain. They are few, so that a robots.txt that denies a domain, or its backoff, costs few of the replies."""

REPLIES_EACH = 32
"""Replies that a domain is asked for on average: some deny their pages or send no valid root page."""

LAG_S = 0.1
MEMORY_MB = 400
_READ = 65_536


class Server:
    """Answers each request with the reply that `seed`, host and path draw. `sent`: the number of replies."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.sent = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while await self._answer(await reader.readuntil(b"\r\n\r\n"), reader, writer):
                pass
        writer.close()

    async def _answer(self, request: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Send one reply. Returns whether the connection stays open."""
        head = request.decode("latin-1")
        path = head.split(" ", 2)[1]
        host = head.lower().partition("\r\nhost: ")[2].partition("\r\n")[0]
        self.sent += 1
        if path == "/" and host.startswith("h"):
            writer.write(_root())
            return True
        rng = random.Random(f"{self._seed} {host} {path}")
        for step in reply(rng, path):
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            elif step is End.STALL:
                await reader.read(_READ)
                return False
            elif step is not End.KEEP:
                if step is End.RESET:
                    linger = struct.pack("ii", 1, 0)  # on, 0 seconds: close() sends RST
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                return False
        if surplus := unrequested(rng):
            await asyncio.sleep(0.02)
            writer.write(surplus)
            await writer.drain()
        return True


def _root() -> bytes:
    """The root page of a domain is sound, and links to the others."""
    body = b"".join(b"<a href=/%d>" % number for number in range(PAGES_EACH))
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def _serve(seed: int) -> None:
    server, stopping = Server(seed), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await stopping.wait()
    print(server.sent, flush=True)


def _settings(folder: Path, port: int) -> Settings:
    return load(
        None,
        {
            "politeness": {
                "delay": 0.0,
                "parallel": 4,
                "response_share": 0,
                "tries": 1,
                "address_rate_limit": "off",
                "backoff_base": 0.05,
                "backoff_max": 0.2,
                "crawl_delay_cap": 0.01,
            },
            "limits": {"domain_cap": 3 * PAGES_EACH},
            "fetch": {
                "host_map": [f"*=127.0.0.1:{port}"],
                "connect_timeout": 2.0,
                "read_timeout": 1.0,
                "timeout": 3.0,
            },
            "archive": {"text": "text", "structured": True, "simhash": True, "soft_404": "mark"},
            "replica": {"data_dir": folder / "data", "out": folder / "out", "interval": 1.0},
        },
    )


async def _crawl(folder: Path, port: int, domains: int) -> None:
    """Crawl to the end in this process, and print what it took."""
    seeds = [f"http://h{number}.test/" for number in range(domains)]
    settings = _settings(folder, port)
    replica, settled = await crawl_to_the_end(settings, seeds)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(
        json.dumps(
            {
                "own_lag_s": replica.loop_lag.longest_own_s,
                "peak_mb": _peak_mb(),
                "cpu_s": used.ru_utime + used.ru_stime,
                "settled": settled.count,
                "reasons": dict(settled.reasons.most_common()),
            }
        )
    )


def _peak_mb() -> float:
    """The peak of this process's memory. `ru_maxrss` would include that of the process that started this one."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


@dataclass
class Report:
    """What the replica did. `breaches`: what should not have happened."""

    responses: int = 0
    settled: int = 0
    own_lag_s: float = 0.0
    peak_mb: float = 0.0
    cpu_s: float = 0.0
    records: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    breaches: list[str] = field(default_factory=list)


def fuzz(folder: Path, responses: int, seed: int) -> Report:
    """Let a replica crawl about so many random replies in `folder`."""
    me = [sys.executable, "-m", "tests.fuzz.live"]
    report = Report()
    with subprocess.Popen([*me, "--serve", "--seed", str(seed)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            domains = max(1, responses // REPLIES_EACH)
            with (folder / "log").open("w") as log:
                crawl = [*me, "--crawl", str(folder), "--port", port, "--domains", str(domains)]
                done = subprocess.run(crawl, check=False, stdout=subprocess.PIPE, stderr=log, text=True)
            server.terminate()
            report.responses = int(server.stdout.readline())
        finally:
            server.kill()  # the end of the block waits for it
    if done.returncode:
        report.breaches.append(f"the replica ended with {done.returncode}: {(folder / 'log').read_text()[-2_000:]}")
        return report
    for name, value in json.loads(done.stdout.splitlines()[-1]).items():
        setattr(report, name, value)
    _judge_files(folder / "out", report)
    if (defects := report.reasons.get("defect", 0)) > 0:
        report.breaches.append(f"{defects} defects:\n" + _tracebacks((folder / "log").read_text()))
    return report


def _judge_files(out: Path, report: Report) -> None:
    """Each settled URL has one line, and each record can be read."""
    lines: Counter[str] = Counter()
    for path in sorted(out.rglob("*.pages.jsonl")):
        lines.update(json.loads(line)["url"] for line in path.read_bytes().splitlines())
    if twice := [url for url, count in lines.items() if count > 1]:
        report.breaches.append(f"{len(twice)} URLs have two lines, such as {twice[0]}")
    if lines.total() != report.settled:
        report.breaches.append(f"{report.settled} URLs were settled, and {lines.total()} have a line")
    if unfinished := list(out.rglob("*.open")):
        report.breaches.append(f"unfinished files: {unfinished}")
    for path in sorted(out.rglob("*.warc.gz")):
        for record in records_in(str(path)):
            report.records += 1
            read_head(record)


def _tracebacks(log: str) -> str:
    """The defects in the log, each kind once."""
    found = [line for line in log.splitlines() if "defect" in line]
    return "\n".join(found[:20])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--crawl", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--domains", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(_serve(options.seed))
        return 0
    if options.crawl:
        asyncio.run(_crawl(options.crawl, options.port, options.domains))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        report = fuzz(Path(folder), options.responses, options.seed)
    if report.own_lag_s > LAG_S:
        report.breaches.append(f"the event loop was late by {report.own_lag_s * 1000:.0f} ms")
    if report.peak_mb > MEMORY_MB:
        report.breaches.append(f"{report.peak_mb:.0f} MB of memory")
    shown: dict[str, Any] = asdict(report)
    breaches = shown.pop("breaches")
    print(json.dumps(shown, indent=1))
    print("\n".join(breaches) or "no breach")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
