"""The output of whole crawls with options that are off by default, and with third-party plugins."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from tests.e2e.harness import EVEN, Web, bench, repeated
from tests.sinks import readers

pytestmark = pytest.mark.e2e

ENTRY_POINTS = """
[peercrawl.page_hooks]
title-length = page_extras:title_length

[peercrawl.sinks]
listing = page_extras:Listing
"""

MODULE = '''
"""A page function and a sink, as somebody else would write them."""


def title_length(page):
    return {"title_length": len(page.title)}


def first_links(page):
    return {"first_links": [link.url for link in page.links[:3]]}


class Listing:
    written_bytes = 0

    def __init__(self, context):
        self.path = context.folder / f"{context.replica}.urls.txt"

    async def start(self):
        self.file = self.path.open("a")

    async def write(self, pages, exchanges=()):
        self.file.writelines(f"{page.url}\\n" for page in pages)
        self.file.flush()
        return frozenset()

    async def stop(self):
        self.file.close()
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with an installed distribution that has a page function and a sink."""
    info = tmp_path / "site" / "page_extras-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: page-extras\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (tmp_path / "site" / "page_extras.py").write_text(MODULE)
    return tmp_path / "site"


def test_installed_code_and_a_module_take_part_in_a_crawl(tmp_path: Path, site: Path) -> None:
    """A page function by its entry point and one by its import path, and a sink by its entry point, on two replicas."""
    with (
        Web(tmp_path, features=EVEN) as web,
        bench(tmp_path, web, tables={"archive": {"sinks": ["listing"]}}) as crawler,
    ):
        hooks = ["--on-page", "title-length", "--on-page", "page_extras:first_links"]
        words = ["crawl", "-f", str(crawler.seeds), "--quiet", "--replicas", "2", *hooks]
        done = crawler.run(*words, environment={"PYTHONPATH": str(site)})
        assert done.code == 0, done.err
        lines = crawler.lines()
        assert len(lines) > 100
        for line in lines:
            assert line["extra"] == {"title_length": len(line["title"]), "first_links": line["links"][:3]}
        listed = [url for path in crawler.out.glob("*.urls.txt") for url in path.read_text().split()]
        assert sorted(listed) == sorted(line["url"] for line in lines)


def test_a_crawl_tells_where_urls_were_found_and_compresses_with_zstd(tmp_path: Path) -> None:
    archive = {"via": True, "compression": "zstd", "parquet": True, "simhash": True}
    with Web(tmp_path) as web, bench(tmp_path, web, tables={"archive": archive}) as crawler:
        done = crawler.crawl("--replicas", "2").wait()
        assert done.code == 0, done.err
        assert web.verdict().ok
        lines = crawler.lines()
        assert repeated([line["url"] for line in lines if line["reason"] != "redirect"]) == []
        # Then each URL but the seeds was found on a page, or in a robots.txt, that was crawled and has that link.
        links = {line["url"]: set(line["links"]) for line in lines}
        found = {line["url"]: line["via"] for line in lines}
        assert {url for url, via in found.items() if via is None} == set(web.world.seeds())
        for url, via in found.items():
            assert via is None or via.endswith("/robots.txt") or url in links[via], (url, via)
        # The WARC files agree, and are complete.
        told = {}
        for path in crawler.out.glob("*.warc.zst"):
            readers.check(path)
            for record in readers.by_fastwarc(path):
                if record.type == "metadata":
                    fields = dict(line.partition(": ")[::2] for line in record.payload.decode().splitlines())
                    told[record.url] = fields.get("via")
        assert told == {line["url"]: line["via"] for line in lines if line["warc"]}
        rows = duckdb.sql(f"select url, via from '{crawler.out}/*.pages.parquet'")
        assert rows is not None
        assert dict(rows.fetchall()) == found
        assert crawler.run("audit", str(crawler.out)).code == 0
