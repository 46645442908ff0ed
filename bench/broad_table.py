"""A broad crawl over HTTPS with several crawlers: a home page and a robots.txt of each of many sites.

    python -m bench.broad_table [--sites 2000] [--runs 3] [--against all]

Needs root (or user namespaces), nginx and dnsmasq. All runs in a network namespace of its own, in which the sites have
names of their own, port 443, and chains of ECDSA and RSA certificates that are verified where the crawler can. A page
is a document of 30 KB whose links robots.txt forbids. A quarter of the sites redirect to `www`; one of 20 is slow (1.5
s), one of 25 refuses connections, one of 50 has no address. Each crawler has 64 requests in flight, no delay, obeys
robots.txt and extracts links. Ours writes WARC, CDXJ and JSON lines, with its frontier in a Valkey; its own
`scope.guess_sitemaps` is off, because nobody else looks for them. The bare loop asks for robots.txt and page with
aiohttp and does nothing else.

*Lost* are pages of sites that answer. CPU is of the process and its children, without nginx, dnsmasq and Valkey, at full
speed (`bench.speed`). docs/explanation/speed.md has the last results.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.contenders import BROAD, Contender
from bench.docweb import nginx
from bench.measure import Usage, median, used_by
from bench.speed import speedometer
from bench.tlsweb import CONFIGURATION, SUFFIXES, domain, home_page, write_certificates
from tests.valkey import ValkeyProcess

INSIDE = "BENCH_BROAD_TABLE_INSIDE"

SERVER = """
server {{
  listen 127.0.0.1:443 ssl{backlog}; server_name {names};
  ssl_certificate {folder}/{certificate}.pem; ssl_certificate_key {folder}/{certificate}.key;
  root {folder};
  if ($host ~ "^d[0-9]*(?:[02468][048]|[13579][26])[.]") {{ rewrite ^/$ https://www.$host/ permanent; }}
  if ($host ~ "[13579]7[.]") {{ set $limit_rate 20k; }}
  location = /robots.txt {{ default_type text/plain; return 200 "User-agent: *\\nDisallow: /private/\\n"; }}
  location = / {{ try_files /page.html =404; }}
}}
"""

BARE_LOOP = """
import asyncio, ssl, sys, aiohttp
async def main():
    pending = iter(sys.stdin.read().split())
    connector = aiohttp.TCPConnector(limit=64, ssl=ssl.create_default_context())
    async with aiohttp.ClientSession(connector=connector) as session:
        async def work():
            for url in pending:
                try:
                    for path in ("robots.txt", ""):
                        async with session.get(url + path) as response:
                            await response.read()
                except (aiohttp.ClientError, OSError):
                    pass
        await asyncio.gather(*(work() for _ in range(64)))
asyncio.run(main())
"""


def redirects(number: int) -> bool:
    """As the pattern in `SERVER`."""
    return number % 4 == 0


def refuses(number: int) -> bool:
    return number % 25 == 9


def has_no_address(number: int) -> bool:
    return number % 50 == 11


@dataclass(frozen=True, slots=True)
class Run:
    """What one crawl took. `pages`: sites whose page was answered with 200; `requests`: all that nginx saw."""

    pages: int
    requests: int
    usage: Usage
    speed: float

    @property
    def pages_per_cpu_s(self) -> float:
        return self.pages / (self.usage.cpu_s * self.speed)


@dataclass(frozen=True, slots=True)
class Web:
    folder: Path
    authorities: Path
    seeds: Sequence[str]

    def measured(self, crawl: Callable[[], Usage]) -> Run:
        log = self.folder / "access.log"
        time.sleep(0.5)  # nginx flushes its log
        before, since = log.stat().st_size, time.monotonic()
        usage = crawl()
        speed = speedometer().mean(since, time.monotonic())
        time.sleep(0.5)
        lines = [line.split() for line in log.read_text()[before:].splitlines()]
        pages = {
            host.removeprefix("www.") for _, host, status, path in lines if status == "200" and path == "/page.html"
        }
        return Run(len(pages), len(lines), usage, speed)


@contextmanager
def serve(sites: int) -> Iterator[Web]:
    """The sites and their names, until the block ends. Needs a network namespace of its own."""
    with tempfile.TemporaryDirectory(prefix="broad-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        page = re.sub(rb'href="[^"]*"', b'href="/private/%b"' % os.urandom(4).hex().encode(), home_page().read_bytes())
        (folder / "page.html").write_bytes(page)
        authorities = write_certificates(
            folder, [f"www.{domain(number)}" for number in range(sites) if redirects(number)]
        )
        kinds = [(rf"~^d[0-9]+\.{suffix}$", suffix) for suffix in SUFFIXES]
        kinds.append((r"~^www\.", "$ssl_server_name"))
        servers = "".join(
            SERVER.format(folder=folder, names=names, certificate=certificate, backlog=backlog)
            for (names, certificate), backlog in zip(kinds, (" backlog=4096", "", ""), strict=True)
        )
        hosts, resolver = folder / "hosts", folder / "resolv.conf"
        with hosts.open("w") as names:
            for number in range(sites):
                address = "127.0.0.2" if refuses(number) else "127.0.0.1"
                if not has_no_address(number):
                    names.write(f"{address} {domain(number)} www.{domain(number)}\n")
        resolver.write_text("nameserver 127.0.0.1\n")
        subprocess.run(["mount", "--bind", resolver, Path("/etc/resolv.conf").resolve()], check=True)
        options = ["--keep-in-foreground", "--no-resolv", "--no-hosts", f"--addn-hosts={hosts}", "--cache-size=0"]
        options += ["--listen-address=127.0.0.1", "--bind-interfaces", "--local=/#/", "--user=root", "--pid-file="]
        names_server = subprocess.Popen(["dnsmasq", "--conf-file=/dev/null", *options])
        try:
            with nginx(folder, CONFIGURATION.format(folder=folder, servers=servers), 443):
                yield Web(folder, authorities, [f"https://{domain(number)}/" for number in range(sites)])
        finally:
            names_server.terminate()
            names_server.wait()


def run_ours(web: Web, scratch: Path) -> Usage:
    seeds, settings = scratch / "seeds.txt", scratch / "settings.toml"
    seeds.write_text("\n".join(web.seeds))
    settings.write_text(
        "[politeness]\ndelay = 0\ntries = 1\naddress_rate_limit = 'off'\n[scope]\nguess_sitemaps = false\n"
        "[fetch]\nallow_private = true\n[archive]\nrevisits = 0\n[frontier]\nshards = 64\n"
    )
    crawler = [sys.executable, "-m", "crawler"]
    env = {"SSL_CERT_FILE": str(web.authorities), "CRAWLER_REPLICA__LOG_LEVEL": "error"}
    with ValkeyProcess(scratch, persistent=False) as valkey:
        where = ["--redis", valkey.url, "--settings", str(settings)]
        subprocess.run([*crawler, "seed", "-f", str(seeds), *where], check=True, stdout=subprocess.DEVNULL)
        run = [*crawler, "run", *where, "--out", str(scratch / "out"), "--until-empty", "--interval", "1"]
        return used_by(run, env={**env, "CRAWLER_REPLICA__CONCURRENCY": "64"}, cwd=scratch)


def run_bare(web: Web, scratch: Path) -> Usage:
    words = [sys.executable, "-c", BARE_LOOP]
    return used_by(words, "\n".join(web.seeds).encode(), {"SSL_CERT_FILE": str(web.authorities)}, scratch)


def run_contender(contender: Contender, web: Web, scratch: Path) -> Usage:
    words = contender.words(contender.python(), scratch, str(web.authorities), web.seeds)
    env = {"SSL_CERT_FILE": str(web.authorities)}
    return used_by(words, env=env, cwd=scratch, good_codes=contender.good_codes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sites", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", nargs="*", choices=["all", *BROAD], default=["all"])
    options = parser.parse_args()
    chosen = list(BROAD) if "all" in options.against else options.against
    for name in chosen:
        BROAD[name].python()  # while there is a network
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        ours = [sys.executable, "-m", "bench.broad_table", *sys.argv[1:]]
        os.execvp("unshare", ["unshare", "--net", "--mount", *(["--map-root-user"] if os.geteuid() else []), *ours])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    crawls = {"bare aiohttp": run_bare, **{name: _of(BROAD[name]) for name in chosen}}
    speedometer()
    runs: dict[str, list[Run]] = defaultdict(list)
    ratios: dict[str, list[float]] = defaultdict(list)
    with serve(options.sites) as web:
        for _ in range(options.runs):
            for name, crawl in crawls.items():
                ours_then = _one(web, run_ours)
                theirs = _one(web, crawl)
                runs["peercrawl"].append(ours_then)
                runs[name].append(theirs)
                ratios[name].append(ours_then.pages_per_cpu_s / theirs.pages_per_cpu_s)
    expected = sum(not refuses(number) and not has_no_address(number) for number in range(options.sites))
    heading = ("", "pages", "lost", "requests/page", "pages/CPU s", "we: x", "wall s", "peak MB")
    form = "{:18} {:>6} {:>5} {:>13} {:>11} {:>6} {:>7} {:>8}"
    print(form.format(*heading))
    for name, found in runs.items():
        pages = median(run.pages for run in found)
        figures = (
            f"{pages:,.0f}",
            f"{expected - pages:,.0f}",
            f"{median(run.requests for run in found) / pages:.2f}",
            f"{median(run.pages_per_cpu_s for run in found):,.0f}",
            f"{median(ratios[name] or [1.0]):.2f}",
            f"{median(run.usage.wall_s for run in found):.1f}",
            f"{median(run.usage.peak_mb for run in found):.0f}",
        )
        print(form.format(name, *figures))


def _of(contender: Contender) -> Callable[[Web, Path], Usage]:
    return lambda web, scratch: run_contender(contender, web, scratch)


def _one(web: Web, crawl: Callable[[Web, Path], Usage]) -> Run:
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        return web.measured(lambda: crawl(web, Path(scratch)))


if __name__ == "__main__":
    main()
