"""Pages of a site are visited again while the crawl runs: changes are found, and unchanged pages cost a 304."""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Running, crawling, quick, wait_until
from tests.sinks import readers
from tests.site import Reply, Request, Site

pytestmark = pytest.mark.e2e

PAGES = ("/", "/still", "/moving", "/going")


class ChangingSite(Site):
    """A site that knows validators. `versions`: of each page, None for one that is gone."""

    def __init__(self) -> None:
        super().__init__()
        self.versions: dict[str, int | None] = dict.fromkeys(PAGES, 1)

    def respond(self, request: Request) -> Reply | str:
        version = self.versions.get(request.path)
        etag, links = f'"{version}"', "".join(f'<a href="{path}">x</a>' for path in PAGES)
        status = 404 if version is None else 304 if request.headers["If-None-Match"] == etag else 200
        body = f"<title>{request.path} {version}</title>{links}"
        return Reply(body if status == 200 else "", status, {"ETag": etag})


def lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((folder / "out").rglob("*.pages.jsonl")):
        yield from map(json.loads, path.read_text().splitlines())


class StyledSite(ChangingSite):
    """Each version of a page has a style sheet of its own, with a picture, and one that all have."""

    def respond(self, request: Request) -> Reply | str:
        name, _, kind = request.path.rpartition(".")
        if kind in ("css", "png"):
            text = f"a {{ background: url({name}.png) }}" if kind == "css" else "picture"
            return Reply(text, headers={"Content-Type": "text/css" if kind == "css" else "image/png"})
        reply = super().respond(request)
        if not isinstance(reply, Reply) or reply.status != 200:
            return reply
        sheets = f"/all.css {request.path}{self.versions[request.path]}.css".split()
        return reply._replace(body=f"{reply.body!s}{''.join(f'<link rel=stylesheet href={one}>' for one in sheets)}")


def settings(site: ChangingSite, folder: Path, rules: list[str], requisites: bool = False) -> str:
    return quick(folder, site.host_map("site.test"), recrawl={"rules": rules}, archive={"requisites": requisites})


def recrawling(site: ChangingSite, folder: Path, rules: list[str]) -> AbstractContextManager[list[str]]:
    """A crawl of `site` with these rules of `[recrawl]` runs until the end of the block."""
    return crawling(folder, "http://site.test/", settings(site, folder, rules))


def test_changes_are_found_and_unchanged_pages_cost_a_304(tmp_path: Path) -> None:
    with ChangingSite() as site, recrawling(site, tmp_path, ["every=1s"]):
        wait_until(lambda: all(site.times(path, 304) for path in PAGES), "a 304 of each page")
        site.versions |= {"/moving": 2, "/going": None}
        wait_until(lambda: site.times("/moving", 200) == 2 and site.times("/going", 404), "the changes")
        site.versions["/going"] = 1
        wait_until(lambda: site.times("/going", 200) == 2, "the page that is back")
        wait_until(lambda: site.times("/still", 304) >= 3, "more visits")
    by_page: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in sorted(lines(tmp_path), key=lambda line: line["settled_at"]):
        by_page[line["url"].removeprefix("http://site.test")].append(line)
    for path in PAGES:
        visits = by_page[path]
        assert len(visits) == site.times(path)
        assert [line["visit"] for line in visits].count("new") == 1 and visits[0]["visit"] == "new"
        assert [line["previous_visit"] for line in visits] == [None, *(line["fetched_at"] for line in visits[:-1])]
    assert {line["visit"] for line in by_page["/still"][1:]} == {"unchanged"}
    assert {(line["digest"], line["status"], line["size"]) for line in by_page["/still"][1:]} == {("", 304, 0)}
    assert [line["visit"] for line in by_page["/moving"]].count("changed") == 1
    assert [line["visit"] for line in by_page["/going"] if line["visit"] not in ("unchanged", "new")] == [
        "gone",
        "back",
    ]
    assert site.times("/still", 200) == 1
    check_records(tmp_path, by_page["/still"])


def test_what_a_page_embeds_at_a_later_visit_is_archived_too(tmp_path: Path) -> None:
    with StyledSite() as site:
        (tmp_path / "crawler.toml").write_text(settings(site, tmp_path, ["every=1h"], requisites=True))
        for words in (["http://site.test/"], ["--due-within", "2h"], ["--due-within", "2h"]):
            command = [sys.executable, "-m", "crawler", "crawl", *words, "-s", "crawler.toml", "--quiet"]
            done = Running(command, tmp_path, "crawl", {}).wait()
            assert done.code == 0, done.err
            site.versions["/moving"] = 2
    parts = ["all", "1", "still1", "moving1", "moving2", "going1"]
    asked = {request.path for request, _ in site.answered if request.path.endswith((".css", ".png"))}
    assert asked == {f"/{part}.{kind}" for part in parts for kind in ("css", "png")}
    archived = {
        record.headers.get("WARC-Target-URI", "").removeprefix("http://site.test")
        for path in (tmp_path / "out").rglob("*.warc.gz")
        for record in readers.by_fastwarc(path)
    }
    assert {"/moving2.css", "/moving2.png"} <= archived


def test_a_page_of_which_nothing_or_a_part_was_kept_is_asked_for_as_a_whole(tmp_path: Path) -> None:
    """A 304 would confirm a body that is not in the archive: of a near copy that was dropped, and of half a page."""
    text, links = "<p>" + " ".join(f"word{number}" for number in range(900)), "<a href=/copy>x</a><a href=/half>x</a>"
    whole = gzip.compress(b"<title>whole</title>" + random.Random(1).randbytes(4_000).hex().encode())

    class HalfSite(ChangingSite):
        def respond(self, request: Request) -> Reply | str:
            reply = super().respond(request)
            assert isinstance(reply, Reply)
            if request.path == "/half" and reply.status == 200:
                body = whole if self.times("/half") else whole[:2_000]
                return reply._replace(body=body, headers={**reply.headers, "Content-Encoding": "gzip"})
            return reply._replace(body=f"<title>one</title>{text}{links}") if reply.status == 200 else reply

    rules = {"rules": ["every=1s"]}
    with HalfSite() as site:
        site.versions = dict.fromkeys(("/", "/copy", "/half"), 1)
        more = quick(tmp_path, site.host_map("site.test"), recrawl=rules, archive={"near_duplicates": "drop"})
        with crawling(tmp_path, "http://site.test/", more):
            wait_until(lambda: site.times("/half", 304) and site.times("/copy") > 3, "later visits")
    assert site.times("/half", 200) == 2 and site.times("/copy", 304) == 0 and site.times("/", 304)
    cuts = [line["cut"] for line in lines(tmp_path) if line["url"].endswith("half") and line["status"] == 200]
    assert cuts == [["coding"], []]


def test_a_run_from_cron_visits_what_is_due_soon_and_says_what_this_run_did(tmp_path: Path) -> None:
    """Each run is some seconds earlier than its interval after the last one, as a weekly job is."""
    with ChangingSite() as site:
        (tmp_path / "crawler.toml").write_text(settings(site, tmp_path, ["every=1h"]))

        def crawl(*words: str) -> str:
            command = [sys.executable, "-m", "crawler", "crawl", *words, "-s", "crawler.toml", "--quiet"]
            done = Running(command, tmp_path, "crawl", {"COLUMNS": "120"}).wait()
            assert done.code == 0, done.err
            return " ".join(done.out.split())

        assert "this run pages 4 200: 4 visits 4 new: 4 errors 0 time" in crawl("http://site.test/")
        site.versions |= {"/moving": 2, "/going": None}
        early = crawl()
        assert "this run pages 0 errors 0 time" in early and "nothing was due" in early
        assert re.search(r"next visit in (59|60) min \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", early)
        assert "nothing was due" in crawl("--due-within", "30m")
        later = crawl("--due-within", "2h")
        assert "this run pages 4 200: 1 304: 2 404: 1 visits 4 unchanged: 2" in later
        assert "changed: 1" in later and "gone: 1" in later and "all its runs pages 8" in later
        assert "nothing was due" in crawl("--due-within", "30m")


def check_records(folder: Path, visits: list[dict[str, Any]]) -> None:
    """Each 304 is a revisit record that refers to the response with the body."""
    records = [
        record
        for path in sorted((folder / "out").rglob("*.warc.gz"))
        for record in readers.by_fastwarc(path)
        if record.headers.get("WARC-Target-URI") == visits[0]["url"]
    ]
    (response,) = (record for record in records if record.headers["WARC-Type"] == "response")
    revisits = [record for record in records if record.headers["WARC-Type"] == "revisit"]
    assert len(revisits) == len(visits) - 1
    for record in revisits:
        assert record.headers["WARC-Profile"].endswith("/server-not-modified")
        assert record.headers["WARC-Refers-To-Target-URI"] == visits[0]["url"]
        assert record.headers["WARC-Refers-To-Date"] == response.headers["WARC-Date"]
        assert "WARC-Payload-Digest" not in record.headers


def test_a_crawl_ends_although_later_visits_are_planned(tmp_path: Path) -> None:
    with ChangingSite() as site:
        (tmp_path / "crawler.toml").write_text(settings(site, tmp_path, ["adaptive"]))
        words = [sys.executable, "-m", "crawler", "crawl", "--settings", str(tmp_path / "crawler.toml")]
        done = Running([*words, "http://site.test/"], tmp_path, "crawl", {}).wait()
        assert done.code == 0, done.err
        assert [site.times(path, 200) for path in PAGES] == [1] * len(PAGES)


def test_the_next_run_in_the_folder_visits_what_is_due(tmp_path: Path) -> None:
    with ChangingSite() as site:
        (tmp_path / "crawler.toml").write_text(settings(site, tmp_path, ["every=4s"]))
        words = [sys.executable, "-m", "crawler", "crawl", "--settings", str(tmp_path / "crawler.toml"), "--quiet"]
        assert Running([*words, "http://site.test/"], tmp_path, "first", {}).wait().code == 0
        time.sleep(4.5)
        again = Running(words, tmp_path, "again", {}).wait()
        assert again.code == 0, again.err
        assert (again.err, "this run" in again.out) == ("", True), "cron sends what is on standard error"
        assert all(site.times(path, 304) for path in PAGES)
