"""Items of handlers on real replicas: each appears exactly once, whatever is killed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fastwarc.warc import WarcRecordType

from crawler.sinks.reader import read_head, records_in
from tests.e2e.harness import EVEN, ROOT, Bench, Running, Tables, Web, bench, repeated
from tests.e2e.victims import kill
from tests.valkey import ValkeyProcess

pytestmark = pytest.mark.e2e

APP = """
from crawler import Handle, ParsedPage, Router

router = Router()

@router.handler(r"/$")
async def root(page: ParsedPage, crawl: Handle) -> None:
    await crawl.push("roots", {"url": page.url})
    await crawl.push("titles", {"url": page.url, "title": page.select_text("title")})

@router.handler(content_type="text/html")
def title(page: ParsedPage, crawl: Handle) -> None:
    crawl.push("titles", {"url": page.url, "title": page.select_text("title")})
"""

JOINED_APP = """
from crawler import FetchFailed, Handle, ParsedPage, Refused, Router

router = Router()

@router.handler(content_type="text/html")
async def joined(page: ParsedPage, crawl: Handle) -> None:
    answers = []
    for url in (page.urls() or [page.url])[:2]:
        try:
            answers.append((await crawl.fetch(url)).url)
        except (FetchFailed, Refused) as error:
            answers.append(error.reason)
    await crawl.push("joined", {"url": page.url, "answers": answers})
"""

ODD_APP = """
import os

from crawler import Handle, ParsedPage, Router

router = Router()

@router.handler(content_type="text/html")
async def odd(page: ParsedPage, crawl: Handle) -> None:
    length = len(page.url)
    await crawl.push("odd", {"url": page.url, "length": str(length) if os.environ["IS_ODD"] == "1" else length})
"""

TABLES: Tables = {"frontier": {"lease": 1.5}}


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, domains=8, pages=80, features=EVEN) as web:
        yield web


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    (tmp_path / "valkey").mkdir()
    (tmp_path / "shop.py").write_text(APP)
    with (
        ValkeyProcess(tmp_path / "valkey", persistent=False) as valkey,
        bench(tmp_path, web, valkey.url, TABLES) as crawler,
    ):
        crawler.out.mkdir()
        yield crawler


def start(crawler: Bench, **more: str) -> Running:
    environment = {"PYTHONPATH": str(ROOT), **more}
    return crawler.start("run", "--until-empty", "--app", "shop:router", environment=environment)


def check(crawler: Bench, web: Web) -> None:
    """Every page that was fetched has its items once, by the command that exports them."""
    pages = {line["url"] for line in crawler.lines() if line["status"] == 200 and line["content_type"] == "text/html"}
    assert pages <= web.expected.urls
    assert len(pages) > 50
    for name in ("titles", "roots"):
        done = Running(
            [sys.executable, "-m", "crawler", "export", str(crawler.out), "--items", name], crawler.folder, name, {}
        ).wait()
        assert done.code == 0, done.err
        items = [
            msgspec.json.decode(line) for line in (crawler.folder / f"export/{name}.jsonl").read_bytes().splitlines()
        ]
        urls = [item["url"] for item in items]
        assert repeated(urls) == []
        assert set(urls) == {url for url in pages if name == "titles" or url.endswith("/")}


@pytest.mark.long
def test_three_replicas_one_of_which_is_killed_agree_on_the_type_of_a_field(
    tmp_path: Path, crawler: Bench, web: Web
) -> None:
    """Each item is written once, and the export has one type for all."""
    (tmp_path / "shop.py").write_text(ODD_APP)
    crawler.type("seed", "-f", str(crawler.seeds), "--app", "shop:router")
    crawler.type("pause")
    web.stop_at(30)
    first, *others = [start(crawler, IS_ODD=odd) for odd in "001"]
    crawler.begin(3)
    with web.stopped():
        kill(first.pid)
    assert [other.wait().code for other in others] == [0, 0]
    assert start(crawler, IS_ODD="0").wait().code == 0
    lines = crawler.lines()
    written = [item for line in lines for item in (line["items"] or {}).get("odd", ())]
    pages = [line["url"] for line in lines if line["status"] == 200 and line["content_type"] == "text/html"]
    assert sorted(item["url"] for item in written) == sorted(pages)
    assert {type(item["length"]) for item in written} == {int, str}
    assert crawler.status()["rejected"] == {}
    assert "odd  length  text" in "  ".join(crawler.type("types").split())


def test_replicas_that_are_killed_lose_no_answer_and_hurry_no_site(tmp_path: Path, crawler: Bench, web: Web) -> None:
    """Handlers make requests to any site. Each item is there once, with the records of its answers, and no others."""
    (tmp_path / "shop.py").write_text(JOINED_APP)
    crawler.type("seed", "-f", str(crawler.seeds), "--app", "shop:router")
    for number in range(1, 4):
        web.stop_at(60 * number)
        running = [start(crawler) for _ in range(2)]
        with web.stopped():
            for replica in running:
                replica.kill()
    assert start(crawler).wait(180.0).code == 0
    verdict = web.verdict(repeats=1_000_000)
    assert verdict.ok, str(verdict)
    lines = {line["url"]: line for line in crawler.lines()}
    items = [item for line in lines.values() for item in (line["items"] or {}).get("joined", ())]
    assert sorted(item["url"] for item in items) == sorted(
        url for url, line in lines.items() if line["status"] == 200 and line["content_type"] == "text/html"
    )
    kept = [item for item in items if lines[item["url"]]["warc"]]  # others say noarchive
    pages, answers = records_of_pages(crawler.out)
    assert sorted(url for item in kept for url in item["answers"] if url.startswith("http")) == sorted(answers)
    assert pages == {item["url"] for item in kept if any(url.startswith("http") for url in item["answers"])}
    crawler.type("audit", str(crawler.out))


def test_replicas_whose_pages_wait_for_the_sites_of_each_other_make_way(
    tmp_path: Path, crawler: Bench, web: Web
) -> None:
    """Otherwise they wait until the time of a handler is over."""
    (tmp_path / "shop.py").write_text(JOINED_APP)
    crawler.type("seed", "-f", str(crawler.seeds), "--app", "shop:router")
    crawler.type("pause")
    running = [start(crawler) for _ in range(3)]
    crawler.begin(3)
    assert [replica.wait(180.0).code for replica in running] == [0, 0, 0]
    answers = [
        url for line in crawler.lines() for item in (line["items"] or {}).get("joined", ()) for url in item["answers"]
    ]
    assert len(answers) > 100
    assert {answer for answer in answers if not answer.startswith("http")} <= {"robots"}
    assert crawler.status()["dead"] == 0
    verdict = web.verdict(repeats=1_000_000)
    assert verdict.ok, str(verdict)


def records_of_pages(out: Path) -> tuple[set[str], list[str]]:
    """The pages whose records have an ID in `out`, and the URLs of the answers that belong to one of them
    and are no redirects."""
    pages, answers = dict[str, str](), list[tuple[str, str]]()
    for path in out.glob("*.warc.gz"):
        for record in records_in(str(path), WarcRecordType.response | WarcRecordType.revisit):
            headers = record.headers
            if page_id := headers.get("WARC-Page-ID"):
                url = headers["WARC-Target-URI"]
                if headers.get("WARC-Resource-Type") == "fetch":
                    read = read_head(record)
                    assert read is not None
                    answers += [] if 300 <= read[0].status < 400 else [(page_id, url)]
                else:
                    pages[page_id] = url
    assert {page_id for page_id, _ in answers} <= pages.keys()
    return set(pages.values()), [url for _, url in answers]


def test_crawl_takes_an_app(tmp_path: Path, web: Web) -> None:
    """On one machine, with three replicas under a supervisor."""
    (tmp_path / "shop.py").write_text(APP)
    with bench(tmp_path, web) as crawler:
        done = crawler.crawl("--app", "shop:router", "--replicas", "3").wait()
        assert done.code == 0, done.err
        check(crawler, web)
        missing = crawler.crawl("--app", "shop:nothing").wait()
        assert missing.code == 2
        assert "'shop:nothing' cannot be imported" in missing.err
