"""A crawl with a purpose obeys what owners say about the use of their pages, and says why; one without records it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.crawl_world import crawl_from
from tests.e2e.harness import Finished
from tests.sinks import readers
from tests.site import Reply, Request, Site
from tests.typed import Typed

pytestmark = pytest.mark.e2e

ROBOTS = (
    "User-agent: *\nDisallow: /.well-known/secret\nContent-Usage: /by-robots/ search=n, train-ai=n\nCrawl-delay: 0.2\n"
)
TDMREP = json.dumps([{"location": "/by-file/", "tdm-reservation": 1, "tdm-policy": "http://a.test/policy"}])
PAGES: dict[str, tuple[dict[str, str], str]] = {
    "/": (
        {},
        "".join(f"<a href={path}>x</a>" for path in ("by-robots/1", "by-header", "by-meta", "by-file/1", "silent")),
    ),
    "/by-robots/1": ({}, "<a href=/never>x</a>"),
    "/by-header": ({"Content-Usage": "search=n, train-ai=n"}, "<title>secret</title><a href=/linked>x</a>"),
    "/by-meta": ({}, "<meta name=robots content=noai><p>no training"),
    "/by-file/1": ({}, "<p>reserved"),
    "/silent": ({"Content-Usage": "search=y"}, "<p>free"),
    "/linked": ({}, "<p>linked"),
    "/robots.txt": ({"Content-Type": "text/plain"}, ROBOTS),
    "/.well-known/tdmrep.json": ({"Content-Type": "application/json"}, TDMREP),
}
EVERY = {"/", "/by-robots/1", "/by-header", "/by-meta", "/by-file/1", "/silent", "/linked", "/never"}


class ReservedSite(Site):
    """One site with `pages`. `statuses`: of paths that do not answer with 200."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = dict(PAGES)
        self.statuses: dict[str, int] = {}

    def respond(self, request: Request) -> Reply:
        headers, body = self.pages.get(request.path, ({}, "nothing"))
        status = 302 if "Location" in headers else 200 if request.path in self.pages else 404
        return Reply(body, self.statuses.get(request.path, status), headers)


@pytest.fixture
def site() -> Iterator[ReservedSite]:
    with ReservedSite() as site:
        yield site


def crawled(site: ReservedSite, folder: Path, expected: int = 0, **politeness: Any) -> dict[str, dict[str, Any]]:
    """The lines of a crawl of `site`, by path."""
    host_map = site.host_map("a.test")
    done = crawl_from(folder, ["http://a.test/"], host_map, {"politeness": politeness})
    assert done.code == expected, done.err
    return {str(line["url"]).removeprefix("http://a.test"): line for line in readers.lines(folder / "out")}


def why(typed: Typed, folder: Path, path: str) -> Finished:
    return typed("why", f"http://a.test{path}", "--data-dir", str(folder / "data"), "--out", str(folder / "out"))


def test_a_crawl_without_a_purpose_records_and_fetches_everything(site: ReservedSite, tmp_path: Path) -> None:
    lines = crawled(site, tmp_path)
    assert lines.keys() == EVERY
    assert {path: line["usage"] for path, line in lines.items() if line["usage"]} == {
        "/by-robots/1": "train-ai=n, search=n",
        "/by-header": "train-ai=n, search=n",
        "/by-meta": "train-ai=n, ai-use=n",
        "/silent": "search=y",
    }
    assert "/.well-known/tdmrep.json" not in site.asked
    assert all(line["outcome"] == "done" for line in lines.values())


def test_a_search_engine_gets_what_it_may_have(site: ReservedSite, tmp_path: Path, typed: Typed) -> None:
    lines = crawled(site, tmp_path, purpose=["search"])
    # What robots.txt refuses is not requested, so neither are the links there. Links of other pages are followed.
    assert "/by-robots/1" not in site.asked
    assert lines.keys() == EVERY - {"/never"}
    denied = {path: (line["reason"], line["status"]) for path, line in lines.items() if line["outcome"] == "denied"}
    assert denied == {"/by-robots/1": ("usage", None), "/by-header": ("usage", 200)}
    assert lines["/by-robots/1"]["usage_statements"] == [
        "robots.txt line 3: Content-Usage: /by-robots/ search=n, train-ai=n"
    ]
    for file in (tmp_path / "out").iterdir():
        assert b"secret</title>" not in file.read_bytes()
    assert (lines["/by-header"]["warc"], lines["/by-header"]["title"]) == (None, "")
    assert "/.well-known/tdmrep.json" not in site.asked  # it says nothing about search
    # `why` names the line responsible, and the audit of the archive agrees.
    told = " ".join(why(typed, tmp_path, "/by-robots/1").out.split())
    assert "denied (usage)" in told
    assert "robots.txt line 3: Content-Usage: /by-robots/ search=n" in told
    assert "header Content-Usage: search=n" in " ".join(why(typed, tmp_path, "/by-header").out.split())
    audit = typed("audit", str(tmp_path / "out"), "--delay", "0.05", "--purpose", "search")
    assert audit.code == 0, audit.out
    # For another purpose, the same archive is not obedient.
    other = typed("audit", str(tmp_path / "out"), "--delay", "0.05", "--purpose", "train-ai", "--json")
    assert {breach["url"] for breach in json.loads(other.out)["breaches"]} == {"http://a.test/by-meta"}


def test_training_asks_for_the_reservations_of_the_site_first(site: ReservedSite, tmp_path: Path, typed: Typed) -> None:
    lines = crawled(site, tmp_path, purpose=["train-ai"])
    assert site.asked[:2] == ["/robots.txt", "/.well-known/tdmrep.json"]
    assert site.asked.count("/.well-known/tdmrep.json") == 1
    denied = {path for path, line in lines.items() if line["outcome"] == "denied"}
    assert denied == {"/by-robots/1", "/by-header", "/by-meta", "/by-file/1"}
    assert {"/by-robots/1", "/by-file/1"} & set(site.asked) == set()
    assert lines["/by-file/1"]["tdm_policy"] == "http://a.test/policy"
    assert "tdmrep.json rule 1: tdm-reservation: 1" in " ".join(why(typed, tmp_path, "/by-file/1").out.split())
    audit = typed("audit", str(tmp_path / "out"), "--delay", "0.05", "--purpose", "train-ai")
    assert audit.code == 0, audit.out  # which checks the delay before the request for tdmrep.json, too


def test_the_file_of_reservations_is_read_if_a_setting_asks_for_it(site: ReservedSite, tmp_path: Path) -> None:
    lines = crawled(site, tmp_path, tdmrep="always")
    assert lines.keys() == EVERY
    assert (lines["/by-file/1"]["usage"], lines["/by-file/1"]["outcome"]) == ("train-ai=n, ai-use=n", "done")


def test_a_page_that_is_not_kept_does_not_count_for_the_page_limit(site: ReservedSite, tmp_path: Path) -> None:
    host_map = site.host_map("a.test")
    tables = {"politeness": {"purpose": ["search"]}, "limits": {"max_pages": 5}}
    ended = crawl_from(tmp_path, ["http://a.test/"], host_map, tables)
    assert ended.code == 0, ended.err
    done = {line["url"] for line in readers.lines(tmp_path / "out") if line["outcome"] == "done"}
    assert done == {f"http://a.test{path}" for path in ("/", "/by-meta", "/by-file/1", "/silent", "/linked")}


FILE = "/.well-known/tdmrep.json"


@pytest.mark.parametrize("target", ["/private/tdm.json", "http://b.test/tdm.json"])
def test_a_redirect_of_the_file_is_not_followed_where_robots_txt_may_deny_it(
    site: ReservedSite, tmp_path: Path, target: str, typed: Typed
) -> None:
    site.pages["/robots.txt"] = ({"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /private/\n")
    site.pages[FILE] = ({"Location": target}, "")
    lines = crawled(site, tmp_path, purpose=["train-ai"])
    assert FILE in site.asked
    assert not {"/private/tdm.json", "/tdm.json"} & set(site.asked)
    assert lines["/by-file/1"]["outcome"] == "done"  # the site has no file
    assert typed("audit", str(tmp_path / "out"), "--delay", "0.05", "--purpose", "train-ai").code == 0


def test_pages_are_not_fetched_for_ai_while_the_file_is_unreachable(site: ReservedSite, tmp_path: Path) -> None:
    site.statuses[FILE] = 500
    lines = crawled(site, tmp_path, expected=1, purpose=["train-ai"], tries=2, backoff_base=1.5)
    assert {path: (line["outcome"], line["reason"]) for path, line in lines.items()} == {
        "/": ("dead", "usage_unreachable")
    }
    assert site.asked == ["/robots.txt", FILE, FILE]
