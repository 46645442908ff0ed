"""Crawl real applications with this crawler, Scrapy and wget, and print a table for the documentation.

    python -m tests.apps [NAME...]

Scrapy and wget are stopped after `LIMIT_S` seconds. None has a delay.
A request is useless if it fetched no page of content, or one that was fetched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contenders import HERE as CONTENDERS
from tests.apps.applications import APPLICATIONS, start
from tests.apps.site import PEERS, Site
from tests.e2e.harness import CRAWLER, toml

LIMIT_S = 60.0


@dataclass(frozen=True)
class Crawl:
    """The URLs that were fetched, in order, and whether the crawl ended by itself. `lines`: what this crawler says
    of each."""

    urls: list[str]
    has_ended: bool
    seconds: float
    lines: list[dict[str, Any]] = field(default_factory=list)

    def content(self, site: Site) -> list[str]:
        """The names of the content pages that were fetched, each as often as it was."""
        return [name for url in self.urls if (name := site.page(url)) is not None]

    def useless(self, site: Site) -> float:
        return 1 - len(set(self.content(site))) / max(1, len(self.urls))

    def row(self, site: Site) -> str:
        end = "" if self.has_ended else "never ended, "
        found = f"{len(set(self.content(site)))} of {len(site.content)}"
        return f"{found}, {end}{len(self.urls):,} requests, {self.useless(site):.0%} useless"


def by_crawler(site: Site, folder: Path, limit_s: float = 5 * LIMIT_S) -> Crawl:
    """With the defaults, but without delays."""
    port = site.url.split(":")[2].split("/")[0]
    tables = {
        "politeness": {"delay": 0.0, "parallel": 4},
        "fetch": {"allow": ["127.0.0.1"], "ports": [80, 443, int(port)]},
        "archive": {"structured": True},
        "replica": {"data_dir": str(folder / "data"), "out": str(folder / "out")},
    }
    text = toml(tables)
    if site.cookie:
        rule = {"origin": f"http://127.0.0.1:{port}", "over_http": True, "headers_env": ["Cookie: APP_COOKIE"]}
        text += "\n[[requests]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in rule.items())
    (folder / "settings.toml").write_text(text)
    words = [*CRAWLER, "crawl", site.url, "--settings", str(folder / "settings.toml"), "--quiet"]
    with (folder / "crawl.log").open("wb") as log:
        seconds, has_ended = _timed(words, folder, limit_s, log, APP_COOKIE=site.cookie)
    lines = [
        line
        for path in sorted((folder / "out").glob("*.pages.jsonl"))
        for line in map(json.loads, path.read_bytes().splitlines())
        if line.get("status") is not None
    ]
    return Crawl([line["url"] for line in lines], has_ended, seconds, lines)


def by_scrapy(site: Site, folder: Path) -> Crawl:
    words = [PEERS / "python", CONTENDERS / "scrapy_spider.py", folder / "scrapy.jsonl", "", site.url]
    seconds, has_ended = _timed(words, folder, LIMIT_S)
    lines = (folder / "scrapy.jsonl").read_text().splitlines() if (folder / "scrapy.jsonl").exists() else []
    return Crawl([json.loads(line)["url"] for line in lines if line.endswith("}")], has_ended, seconds)


def by_wget(site: Site, folder: Path) -> Crawl:
    words = [
        "wget",
        "--recursive",
        "--level=inf",
        "--no-verbose",
        "--output-file=wget.log",
        "--directory-prefix=wget",
        site.url,
    ]
    seconds, has_ended = _timed(words, folder, LIMIT_S)
    urls = re.findall(r"(?m)^\S+ \S+ URL: ?(\S+) \[", (folder / "wget.log").read_text(errors="replace"))
    return Crawl(urls, has_ended, seconds)


def _timed(
    words: list[str | Path], folder: Path, limit_s: float, log: object = subprocess.DEVNULL, **environment: str
) -> tuple[float, bool]:
    """How many seconds a command took, and whether it ended within the limit."""
    started = time.monotonic()
    process = subprocess.Popen(
        words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **environment}
    )  # type: ignore[call-overload]
    try:
        process.wait(limit_s)
        return time.monotonic() - started, True
    except subprocess.TimeoutExpired:
        process.terminate()
        process.wait()
        return limit_s, False


def main(names: list[str]) -> None:
    print("| Application | peercrawl | Scrapy | wget |\n|---|---|---|---|")
    for name in names or APPLICATIONS:
        rows = []
        with tempfile.TemporaryDirectory() as root, start(name, Path(root)) as site:
            for crawl in (by_crawler, by_scrapy, by_wget):
                with tempfile.TemporaryDirectory() as folder:
                    rows.append(crawl(site, Path(folder)).row(site))
        print(f"| {name} | {' | '.join(rows)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
