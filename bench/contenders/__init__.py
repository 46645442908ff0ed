"""Other crawlers, run on the same pages: each from the newest release, in a virtual environment of its own.

Their dependencies contradict ours and one another's, so each environment is made when it is first needed, in
`~/.cache/peercrawl-bench` (or $XDG_CACHE_HOME); remove the folder to get newer releases. All get the same seeds, at the
addresses of `bench.docweb`, 64 requests in flight, no delay, robots.txt obeyed, certificates not verified.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "peercrawl-bench"
CONCURRENCY = 64


@dataclass(frozen=True, slots=True)
class Contender:
    """Another crawler. `words`: its command, of a Python with `requirements`, an empty folder, a Redis URL and seeds.
    `redis`: whether it needs that Redis. `good_codes`: how it may exit."""

    name: str
    requirements: tuple[str, ...]
    words: Callable[[Path, Path, str, Sequence[str]], list[str | Path]]
    redis: bool = False
    good_codes: tuple[int, ...] = (0,)

    def python(self) -> Path:
        """The interpreter of its environment, which is made if need be."""
        if not self.requirements:
            return Path(sys.executable)
        place = CACHE / self.name
        interpreter = place / "bin" / "python"
        if not (place / "ready").exists():
            print(f"making the environment of {self.name} in {place}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
            subprocess.run([interpreter, "-m", "pip", "install", "--quiet", *self.requirements], check=True)
            (place / "ready").touch()
        return interpreter

    def version(self) -> str:
        """The release that runs here."""
        if not self.requirements:
            told = subprocess.run([self.name, "--version"], check=True, capture_output=True, text=True).stdout
            return told.split()[2]
        package = self.requirements[0].partition("[")[0]
        code = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.run([self.python(), "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    @property
    def is_available(self) -> bool:
        return bool(self.requirements) or shutil.which(self.name) is not None


def _scrapy(python: Path, folder: Path, redis_url: str, seeds: Sequence[str]) -> list[str | Path]:
    return [python, HERE / "scrapy_spider.py", folder / "pages.jsonl", redis_url, *seeds]


def _crawlee(python: Path, folder: Path, redis_url: str, seeds: Sequence[str]) -> list[str | Path]:
    return [python, HERE / "crawlee_crawler.py", folder / "pages.jsonl", *seeds]


def _wget2(python: Path, folder: Path, redis_url: str, seeds: Sequence[str]) -> list[str | Path]:
    options = ["--recursive", "--level=0", f"--max-threads={CONCURRENCY}", "--robots=on", "--no-check-certificate"]
    # Images and style sheets are not pages: nobody else fetches them.
    tags = ["--ignore-tags=img,link,script,source,object,embed,iframe"]
    return ["wget2", "--quiet", *options, *tags, f"--directory-prefix={folder}", *seeds]


def _crawlberg(python: Path, folder: Path, redis_url: str, seeds: Sequence[str]) -> list[str | Path]:
    return [python, HERE / "crawlberg_crawler.py", folder / "pages.jsonl", *seeds]


CONTENDERS = {
    contender.name: contender
    for contender in (
        Contender("wget2", (), _wget2, good_codes=(0, 8)),  # 8: a link led to a 404
        Contender("crawlee", ("crawlee[parsel]",), _crawlee),
        Contender("scrapy", ("scrapy",), lambda python, folder, _, seeds: _scrapy(python, folder, "", seeds)),
        Contender("scrapy-redis", ("scrapy-redis",), _scrapy, redis=True),
    )
}

BROAD = {
    **{name: CONTENDERS[name] for name in ("scrapy", "crawlee")},
    "crawlberg": Contender("crawlberg", ("crawlberg",), _crawlberg),
    "wget2": Contender("wget2", (), _wget2, good_codes=(0, 4, 5, 8)),  # 4, 5: some did not answer
}
"""Those of the broad crawl."""
