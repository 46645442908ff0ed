"""What the archive costs: CPU per page and bytes per page of each option, and its memory over many pages.

    python -m bench.sinks FOLDER [PAGES] [LONG]

Reads up to PAGES (200) HTML files of 25 to 60 KB below FOLDER, parses them, and writes them in groups of 32 with each
option; process CPU time, medians of five rounds. "nothing" is the cost of an archive that writes nothing. With LONG (say
100000) so many pages with different bodies are written at last, and the memory is told after each tenth. The last result is
in docs/reference/output.md.
"""

from __future__ import annotations

import asyncio
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from crawler.page import Page
from crawler.parse.html import ExtractPolicy, extract
from crawler.sinks.archive import Archive
from crawler.sinks.archive_settings import ArchiveSettings
from tests.sinks.readers import files
from tests.sinks.values import exchange, page

GROUP = 32
ROUNDS = 5
NONE: dict[str, Any] = {"metadata": False, "index": False, "pages": False, "revisits": 0}
TABLE: dict[str, Any] = {"metadata": False, "index": False, "warc": False}

OPTIONS: dict[str, dict[str, Any]] = {
    "nothing": {**NONE, "warc": False},
    "WARC: request and response": NONE,
    "  and metadata": {**NONE, "metadata": True},
    "  and CDXJ": {**NONE, "index": True},
    "  and revisits": {**NONE, "revisits": 16_384},
    "  in zstd": {**NONE, "compression": "zstd"},
    "JSON lines": TABLE,
    "  without links": {**TABLE, "links": False},
    "  and main text": {**TABLE, "text": "text"},
    "  and Markdown": {**TABLE, "text": "markdown"},
    "  and structured data": {**TABLE, "structured": True},
    "  and Parquet": {**TABLE, "parquet": True},
    "  and simhash": {**TABLE, "simhash": True},
    "  and near copies": {**TABLE, "near_duplicates": "mark"},
    "  and soft 404s": {**TABLE, "soft_404": "mark"},
    "  and main text, all three": {**TABLE, "text": "text", "near_duplicates": "mark", "soft_404": "mark"},
    "the default": {},
    "the default, with fsync": {"fsync": True},
}


def pages_below(folder: Path, count: int) -> list[Page]:
    bodies = [path.read_bytes() for path in sorted(folder.rglob("*.html")) if 25_000 < path.stat().st_size < 60_000]
    random.Random(1).shuffle(bodies)
    return [_page(f"docs/page-{n}.html", body) for n, body in enumerate(bodies[:count])]


def _page(name: str, body: bytes) -> Page:
    made = exchange(name, body)
    found = extract(body, made.url, "text/html", ExtractPolicy())
    about = {"title": found.title, "lang": found.lang, "charset": found.charset, "content_type": "text/html"}
    return page(made, links=found.links, decoded_size=len(body), **about)


async def written(pages: list[Page], folder: Path, options: dict[str, Any]) -> tuple[float, int]:
    """CPU seconds for all `pages`, and the bytes that the files hold."""
    before = time.process_time()
    archive = Archive(ArchiveSettings(folder=folder, crawl="bench", replica="one", **options))
    await archive.start()
    for at in range(0, len(pages), GROUP):
        await archive.write(pages[at : at + GROUP])
    await archive.stop()
    return time.process_time() - before, sum(path.stat().st_size for path in files(folder))


def measure(pages: list[Page]) -> None:
    size = sum(len(one.exchange.body) for one in pages if one.exchange) // len(pages)
    links = sum(len(one.links) for one in pages) // len(pages)
    print(f"{len(pages)} pages of {size:,} bytes with {links} links\n{'':30}ms a page  bytes a page")
    for name, options in OPTIONS.items():
        rounds = []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:
                rounds.append(asyncio.run(written(pages, Path(folder), options)))
        spent = statistics.median(cpu for cpu, _ in rounds) / len(pages) * 1000
        print(f"{name:30}{spent:9.3f}{rounds[0][1] // len(pages):15,}", flush=True)


async def endure(pages: list[Page], count: int) -> None:
    """Write `count` pages, with the default options, Parquet and a search for near copies, and tell of the memory
    meanwhile."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        options: dict[str, Any] = {"parquet": True, "near_duplicates": "mark", "soft_404": "mark"}
        archive = Archive(
            ArchiveSettings(folder=Path(folder), crawl="bench", replica="one", max_bytes=1 << 27, **options)
        )
        await archive.start()
        for number in range(0, count, GROUP):
            await archive.write([_varied(pages[n % len(pages)], n) for n in range(number, number + GROUP)])
            if number % (count // 10) < GROUP:
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
                print(f"{number:9,} pages: {_resident_mb():5} MB resident, {peak:5} MB at most", flush=True)
                for path in files(Path(folder), ".warc.gz"):
                    path.unlink()
        await archive.stop()


def _varied(one: Page, number: int) -> Page:
    assert one.exchange is not None
    body = one.exchange.body.replace(b" the ", b" the%d " % number)  # so that no page is near another
    made = replace(one.exchange, url=f"https://site.test/{number}", body=body)
    return replace(one, url=made.url, exchange=made)


def _resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1_048_576


def main(folder: str, count: str = "200", long: str = "0") -> None:
    pages = pages_below(Path(folder), int(count))
    measure(pages)
    if int(long):
        asyncio.run(endure(pages, int(long)))


if __name__ == "__main__":
    main(*sys.argv[1:])
