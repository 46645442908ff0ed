"""Malformed pages: each can fail only itself, and neither the crawl nor the event loop."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Event, Thread
from types import MappingProxyType

import pytest

from crawler.logs import BURST
from tests.e2e.harness import ROOT, Running, toml, wait_until
from tests.site import Reply, Request, Site

pytestmark = pytest.mark.e2e

CRAWLER = [sys.executable, "-m", "crawler"]
HTML = "text/html"
SPACES = " " * 16_000
NUMBER = "&#" + "1" * 4_301
"""A character reference with a number that Python's int() rejects."""

GOOD = [f"/good/{number}" for number in range(50)]
ODD: dict[str, tuple[str, str]] = {  # name -> content type, document; each links to /from/NAME
    "title": (HTML, f"<title>{NUMBER}</title><a href=/from/title>"),
    "elsewhere": (
        HTML,
        f"<html lang='{NUMBER}'><base href='/{NUMBER}'><link rel=next href='{NUMBER}'><iframe src='{NUMBER}'></iframe>"
        f"<a href='{NUMBER}'><a href='http://a.test/from/elsewhere'>",
    ),
    "open-tag": (HTML, "<a href=/from/open-tag><a " + "a " * 880_000),
    "attributes": (HTML, "<a href=/from/attributes><a " + "a " * 3_400_000 + ">"),
    "charset": (f"text/html;charset={SPACES};", "<a href=/from/charset>"),
    "meta": (HTML, f"<meta http-equiv=content-type content='text/html;charset={SPACES};'><a href=/from/meta>"),
    "refresh": (HTML, f"<meta http-equiv=refresh content='{'1' * 16_000}'><a href=/from/refresh>"),
    "type": (HTML, f"<link rel=alternate type='text/html;charset={SPACES};' href=/from/type>"),
    "long": (HTML, "<p>text</p>" * 290_000 + "<a href=/from/long>"),
    "surrogate": (HTML, r'<script type="application/ld+json">{"name": "\ud800"}</script><a href=/from/surrogate>'),
    "digits": (
        HTML,
        f'<script type="application/ld+json">{{"name": {"9" * 4_000}}}</script><a href=/from/digits>',
    ),
    "nested": (
        HTML,
        f'<script type="application/ld+json">{"[" * 900 + "]" * 900}</script><a href=/from/nested>',
    ),
    "many": (
        HTML,
        "<a href=/from/many>" + "".join(f"<a href=mailto:{number}>" for number in range(99)) + "<a href=/no>",
    ),
}
CUT = {"/attributes": ["text"], "/many": ["links"]}
PATHS = {"/", *GOOD, *(f"/{name}" for name in ODD), *(f"/from/{name}" for name in ODD)}


def respond(request: Request) -> Reply:
    """One site with `GOOD` and `ODD` pages."""
    media, document = ODD.get(request.path[1:], (HTML, f"<html lang=en><title>{request.path}</title><p>a page"))
    if request.path == "/":
        document = "".join(f"<a href={path}>" for path in [*(f"/{name}" for name in ODD), *GOOD])
    if request.path == "/robots.txt":
        media, document = "text/plain", "User-agent: *\nDisallow: /private"
    # The names differ in case only for the test: this is one list (RFC 9110 5.3).
    headers = {"Content-Type": media, "Content-Encoding": "identity", "content-encoding": "gzip"}
    status = 200 if request.path in {*PATHS, "/robots.txt"} else 404
    return Reply(gzip.compress(document.encode(), 1), status, headers)


@contextlib.contextmanager
def watched(crawler: Running) -> Iterator[list[float]]:
    """The duration of each response of /healthz in seconds, polled ten times a second while the replica runs."""
    started = wait_until(lambda: re.search(r"replica_started .*address=(\S+)", crawler.err), "the status server")
    seconds: list[float] = []
    over = Event()

    def ask() -> None:
        while not over.wait(0.1):
            began = time.monotonic()
            with contextlib.suppress(OSError, urllib.error.URLError):
                urllib.request.urlopen(f"http://{started[1]}/healthz", timeout=30).read()
                seconds.append(time.monotonic() - began)

    asking = Thread(target=ask)
    asking.start()
    try:
        yield seconds
    finally:
        over.set()
        asking.join()


def crawl(
    folder: Path, web: Site, environment: Mapping[str, str] = MappingProxyType({}), **archive: object
) -> tuple[Running, Path]:
    settings = folder / "crawler.toml"
    settings.write_text(
        toml(
            {
                "politeness": {"delay": 0, "backoff_base": 0.1},
                "fetch": {"host_map": web.host_map("a.test")},
                "archive": {"structured": True, **archive},
                "limits": {"max_links": 100},
                "replica": {
                    "data_dir": str(folder / "data"),
                    "out": str(folder / "out"),
                    "interval": 0.5,
                },
            }
        )
    )
    options = ["-s", str(settings)]
    seeded = Running([*CRAWLER, "seed", *options, "http://a.test/"], folder, "seed", {}).wait()
    assert seeded.code == 0, seeded.err
    return Running([*CRAWLER, "run", "--until-empty", *options], folder, "run", environment), folder / "out"


def lines_in(folder: Path) -> dict[str, dict[str, object]]:
    lines = (json.loads(line) for file in folder.glob("*.jsonl") for line in file.read_text().splitlines())
    return {line["url"].removeprefix("http://a.test"): line for line in lines}


@pytest.mark.timed
def test_odd_pages_cost_nobody_else_anything(tmp_path: Path) -> None:
    """Given pages that once crashed or froze a replica, or lost their links, when their site is crawled, then every
    page and each of its links is fetched once, and the replica stays responsive."""
    with Site(respond) as web:
        crawler, out = crawl(tmp_path, web)
        with watched(crawler) as seconds:
            done = crawler.wait()
    assert done.code == 0, done.err
    asked = [path for path in web.asked if path != "/robots.txt"]
    assert set(asked) >= PATHS
    assert len(asked) == len(set(asked))
    lines = lines_in(out)
    assert {path for path in PATHS if lines[path]["outcome"] != "done"} == set()
    assert {path: lines[path]["cut"] for path in PATHS if lines[path]["cut"]} == CUT
    assert "/no" not in web.asked
    status = Running(
        [*CRAWLER, "status", "--json", "-s", str(tmp_path / "crawler.toml")], tmp_path, "status", {}
    ).wait()
    assert json.loads(status.out)["cut"] == {"links": 1}
    assert lines["/surrogate"]["json_ld"] == [{"name": "?"}]
    assert "defect" not in done.err
    assert len(seconds) > 10
    assert max(seconds) < 0.5, sorted(seconds)[-5:]


STAGES = {
    "fetch": "crawler.fetch.connection:GuardedProtocol.receive",
    "robots": "politeness.robots_match:Rules.decide",
    "answer": "crawler.worker.request:Throttle.update_backoff",
    "read": "crawler.parse.child:read_if_small",
    "items": "crawler.worker.page:extract_items",
    "text": "crawler.parse.text:content_of",
    "record": "crawler.sinks.warc:WarcRecords.metadata",
    "line": "crawler.sinks.lines:PageLines._line",
    "listener": "crawler.observe.metrics:Metrics._page",
}
"""A function of each stage."""

LOST = {"fetch": "defect", "robots": "robots_unreachable", "read": "defect", "items": "defect"}
"""Stages that must succeed for a page to be fetched, and the reason of one for which they do not."""

RAISES = """
import importlib, json, os

def about(value):
    return str(getattr(value, "head", value))  # of a request, which does not show its head

def replace(target, url):
    module, _, path = target.partition(":")
    *owners, name = path.split(".")
    owner = importlib.import_module(module)
    for step in owners:
        owner = getattr(owner, step)
    function = getattr(owner, name)

    def raising(*arguments, **named):
        if any(url in (said := about(argument)) and (name != "_line" or "lang='en'" in said) for argument in arguments):
            raise RuntimeError("for the test")
        return function(*arguments, **named)

    setattr(owner, name, raising)

for target, url in json.loads(os.environ["RAISES"]).items():
    replace(target, url)
"""
"""A `sitecustomize` module: in every process it makes each of some functions raise for one URL."""


def test_an_error_at_any_stage_costs_one_page(tmp_path: Path) -> None:
    """Given that each stage raises for one URL, then all other URLs are fetched, those URLs are settled and not requested
    again, the errors are logged with their tracebacks, and the crawl ends as usual."""
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(RAISES)
    paths = {stage: f"/good/{number}" for number, stage in enumerate(STAGES, 20)}
    raises = json.dumps({STAGES[stage]: path for stage, path in paths.items()})
    with Site(respond) as web:
        crawler, out = crawl(tmp_path, web, {"PYTHONPATH": f"{tmp_path / 'path'}:{ROOT}", "RAISES": raises})
        done = crawler.wait()
    assert done.code == 0, done.err
    assert set(web.asked) >= PATHS - {paths["robots"], paths["fetch"]}
    lines = lines_in(out)
    assert set(lines) >= PATHS
    for stage, path in paths.items():
        assert web.asked.count(path) == (stage != "robots"), stage
        ended = ("dead", LOST[stage]) if stage in LOST else ("done", "ok")
        assert (lines[path]["outcome"], lines[path]["reason"]) == ended, stage
        assert lines[path]["cut"] == (["defect"] if stage in ("text", "record", "line") else []), stage
    assert "RuntimeError: for the test" in done.err
    assert done.err.count("Traceback (most recent call last)") >= BURST
