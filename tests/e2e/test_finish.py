"""`crawler finish`: the files of killed replicas in a folder where no replica starts again."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawler.errors import UPLOADS_LEFT
from tests.e2e.harness import EVEN, Bench, Finished, Web, bench, wait_until
from tests.e2e.test_killing import TABLES, start, start_held
from tests.e2e.victims import kill, replicas_under
from tests.killing import find
from tests.ports import free_port
from tests.sinks import readers
from tests.sinks.test_recovery import durable_before_death
from tests.typed import Typed

pytestmark = pytest.mark.e2e


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    with Web(tmp_path, domains=8, pages=40, features=EVEN) as web:
        yield web


@pytest.fixture
def crawler(tmp_path: Path, web: Web) -> Iterator[Bench]:
    with bench(tmp_path, web, tables=TABLES, has_server=True) as crawler:
        crawler.seed()
        crawler.out.mkdir()
        yield crawler


@pytest.fixture
def finish(typed: Typed, crawler: Bench) -> Callable[..., Finished]:
    """Types `crawler finish` with the settings of the crawl."""
    return lambda *words: typed("finish", "--settings", str(crawler.settings), *words, environment={"COLUMNS": "200"})


def test_the_folder_of_a_killed_replica_is_finished_and_no_page_is_there_twice(crawler: Bench, web: Web) -> None:
    """Typed in processes of their own; the other tests save that."""
    # Given a replica that was killed before its last pages were settled, in a folder of its own,
    start_held(crawler, 1_000).kill()
    left = crawler.out
    assert readers.files(left, ".journal.open")
    # When its folder is finished, and the crawl goes on in another one,
    done = crawler.run("finish", str(left))
    assert done.code == 0, done.err
    assert "removed, because not settled: " in done.out
    assert not readers.files(left, ".open")
    crawler.out = left.with_name("elsewhere")
    crawler.configure({})
    assert start(crawler).wait().code == 0
    # Then each URL is in one of the folders, once, with its record and its row in Parquet.
    for path in left.iterdir():
        path.rename(crawler.out / path.name)
    expected = web.expected.urls | web.expected.denied
    findings = find(crawler.out, expected, kills=1)
    assert findings.ok, str(findings)
    urls = Counter(url for path in crawler.out.glob("*.parquet") for url in pq.read_table(path)["url"].to_pylist())
    assert urls == Counter(expected)
    again = crawler.run("finish", str(crawler.out))
    assert (again.code, again.out) == (0, f"{crawler.out}/ has no open files with pages\n")


def test_what_a_running_replica_writes_is_left_alone(crawler: Bench, finish: Callable[..., Finished]) -> None:
    start_held(crawler, 1_000).kill()
    replica = start_held(crawler, 1_000)  # finishes the files of the first one
    before = {path.name: path.read_bytes() for path in crawler.out.glob("*.open")}
    done = finish(str(crawler.out))
    assert done.code == 2
    assert "a running replica or another `crawler finish` has the open files" in done.err
    # Those of a killed process beside it are finished.
    durable = durable_before_death(crawler.out, "gzip", groups=3)
    result = json.loads(finish(str(crawler.out), "--json").out)
    assert len(result["files"]) == 2
    assert {f"{name}.pages.jsonl.open" for name in result["being_written"]} <= before.keys()
    assert {path.name: path.read_bytes() for path in crawler.out.glob("*.open")} == before
    assert durable <= {str(line["url"]) for line in readers.lines(crawler.out)}
    assert replica.is_running


def test_nothing_is_finished_if_redis_cannot_be_asked(crawler: Bench, finish: Callable[..., Finished]) -> None:
    start_held(crawler, 1_000).kill()
    before = {path.name: path.read_bytes() for path in crawler.out.iterdir()}
    rows = crawler.lines()
    for words, code, said in (
        (("--redis", "redis://127.0.0.1:1"), 75, "127.0.0.1:1"),
        (("--crawl", "news"), 2, "belong to crawl 'crawl': add --crawl crawl"),
    ):
        done = finish(str(crawler.out), *words)
        assert done.code == code, done.err
        assert said in done.err
        assert {path.name: path.read_bytes() for path in crawler.out.iterdir()} == before
    # Without Redis, everything is kept.
    done = finish(str(crawler.out), "--redis", "redis://127.0.0.1:1", "--offline")
    assert done.code == 0, done.err
    assert readers.lines(crawler.out) == rows
    assert not readers.files(crawler.out, ".open")


def test_a_whole_crawl_that_was_killed_is_exported_before_and_after_it_is_finished(
    tmp_path: Path, web: Web, typed: Typed
) -> None:
    """On one machine, with the embedded store."""
    with bench(tmp_path, web) as crawler:
        supervisor = crawler.crawl()
        wait_until(lambda: any(path.stat().st_size for path in crawler.out.glob("*.pages.jsonl.open")), "a row")
        (replica,) = replicas_under(supervisor, 1)
        os.kill(replica, signal.SIGSTOP)  # otherwise it may notice the kill of its supervisor, and stop cleanly
        supervisor.kill()
        kill(replica)
        archived = {line["url"] for line in crawler.lines() if line["warc"]}
        export = ("export", str(crawler.out), "--out", str(tmp_path / "export"), "--processes", "1")
        shown = typed(*export)
        assert f"crawler finish {crawler.out}" in shown.err
        assert archived <= {line["url"] for line in readers.lines(tmp_path / "export")}
        done = crawler.run("finish")
        assert (done.code, done.err) == (0, "")
        assert "finished in" in done.out
        assert typed(*export).code == 0
        settled = {line["url"] for line in readers.lines(crawler.out) if line["warc"]}
        assert settled == {line["url"] for line in readers.lines(tmp_path / "export")}


@pytest.mark.parametrize("replicas", ["1", "2"])
def test_a_crawl_whose_files_cannot_be_uploaded_says_so_by_its_exit_code(
    tmp_path: Path, web: Web, replicas: str
) -> None:
    """It is not started again by the supervisor."""
    with bench(tmp_path, web, "", {"archive": {"upload": "s3://crawls/news"}}) as crawler:
        environment = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{free_port()}", "AWS_ALLOW_HTTP": "true"}
        environment |= {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        words = ("crawl", "-f", str(crawler.seeds), "--quiet", "--replicas", replicas)
        done = crawler.run(*words, environment=environment)
        assert done.code == UPLOADS_LEFT, done.err
        assert 1 <= done.err.count("uploads_left") <= int(replicas)  # one may have had no page
        assert "another one is started" not in done.err
