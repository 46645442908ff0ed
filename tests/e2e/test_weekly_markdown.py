"""The recipe for Markdown, done each week while the site changes: the folder is what a fresh crawl of the site gives, and
files that need no change stay as they are."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Running
from tests.site import TEXT, Reply, Request, Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

RECIPE = (ROOT / "docs/how-to/recipe-site-to-markdown.md").read_text()
SETTINGS = "".join(re.findall(r"^```toml\n(.*?)^```", RECIPE, re.MULTILINE | re.DOTALL))
EXPORT = re.search(r"^crawler (export .*)$", RECIPE, re.MULTILINE)
OF_VISIT = re.compile(r"^(?:fetched|visit): .*\n", re.MULTILINE)

ALWAYS = ("stays", "confirmed", "links", "retitled", "changes", "canonical", "rewritten", "moves", "deleted", "leaves")
AWHILE = ("gone", "busy", "locked", "unindexed", "unindexed-304", "refused", "unarchived")  # in the second week
WITH_ETAG = ("confirmed", "links", "unindexed-304", "orphan", "below")
SECOND_WEEK: Mapping[str, Reply] = {
    "moves": Reply(status=301, headers={"Location": "/docs/moved"}),
    "gone": Reply("gone", 410),
    "busy": Reply("later", 503),
    "locked": Reply("no", 403),
}


def words(name: str) -> str:
    """Text that no other page has."""
    return "".join(f"<p>The {name} part of the manual, number {n}, tells how {name} {n} is used.</p>" for n in range(6))


class Manual(Site):
    """A site in one of three weeks."""

    week = 1

    def respond(self, request: Request) -> Reply | None:
        path, week = request.path, self.week
        if path == "/robots.txt":
            return Reply("User-agent: *\nDisallow: /private" if week == 2 else "", headers=TEXT)
        if path == "/":
            names = [*ALWAYS, *AWHILE, *(["new"] if week > 1 else []), *(["newer"] if week > 2 else [])]
            names += [] if week == 2 else ["orphan"]
            paths = [f"/docs/{name}" for name in names if name != "retitled"]
            links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in (*paths, "/private/notes", "/?id=7"))
            return self.page(request, "Manual", f"{words('first')}<ul>{links}</ul>")
        if path == "/private/notes":
            return self.page(request, "Notes", words("notes"))
        if path == "/?id=7":
            return self.page(request, "Seven" if week == 1 else "Number seven", words("seven"))
        return self.document(request, path.removeprefix("/docs/"))

    def document(self, request: Request, name: str) -> Reply | None:
        week = self.week
        is_there = {
            "orphan": True,
            "below": True,
            "moved": week == 2,
            "new": week == 2,
            "newer": week == 3,
            "deleted": week == 1,
        }
        if name == "leaves" and week > 1:
            return Reply(status=302, headers={"Location": "http://elsewhere.example/"})
        if week == 2 and name in SECOND_WEEK:
            return SECOND_WEEK[name]
        if not is_there.get(name, name in (*ALWAYS, *AWHILE)):
            return None
        head, headers, text = "", {}, words(name)
        if week == 2:
            head = {
                "unindexed": '<meta name="robots" content="noindex">',
                "unarchived": '<meta name="robots" content="noarchive">',
            }.get(name, "")
            headers = {"unindexed-304": {"X-Robots-Tag": "noindex"}, "refused": {"Content-Usage": "train-ai=n"}}.get(
                name, {}
            )
        if name == "canonical" and week > 1:
            head = '<link rel="canonical" href="/docs/stays">'
        if name in ("changes", "busy", "locked"):
            text += words(f"{name}{week}")
        if name == "rewritten":
            text = words(f"{name}{week}")
        if name == "links":  # to pages whose files come and go
            names = ("moves", "deleted", "gone", "busy", "refused", "unindexed", "stays#top")
            text += "<p>See " + ", ".join(f'<a href="/docs/{one}">{one}</a>' for one in names)
            text += ', <a href="/?id=7">seven</a> and <a href="/private/notes">notes</a>.</p>'
        if name == "orphan":  # no page links to it in the second week, nor to the page below it
            text += '<p>See <a href="/docs/below">below</a>.</p>'
        if name == "below":
            text += '<p>See <a href="/docs/orphan">above</a>.</p>'
        return self.page(request, name.title(), text, head, headers)

    def page(
        self, request: Request, title: str, text: str, head: str = "", headers: Mapping[str, str] | None = None
    ) -> Reply:
        body = f'<html lang="en"><title>{title}</title>{head}<nav><a href="/">Top</a></nav><main><h1>{title}</h1>{text}'
        if not request.path.endswith(WITH_ETAG):
            return Reply(body, headers=headers or {})
        is_known = request.headers["If-None-Match"] == '"1"'
        return Reply("" if is_known else body, 304 if is_known else 200, {"ETag": '"1"', **(headers or {})})


def do_recipe(folder: Path, site: Manual, *more: str) -> str:
    """Crawl and export in `folder`. Returns what the export says."""
    folder.mkdir(exist_ok=True)
    quick = "[politeness]\ndelay = 0.02\nresponse_share = 0\nbackoff_base = 0.2\ntries = 2\nrobots_max_age = 0.2"
    settings = SETTINGS.replace("[politeness]", quick)
    assert settings != SETTINGS and EXPORT
    (folder / "crawler.toml").write_text(f"{settings}\n[fetch]\nhost_map = {site.host_map('docs.example')}\n")
    crawl = ["crawl", "http://docs.example", "--settings", "crawler.toml", "--quiet", *more]
    for words in (crawl, shlex.split(EXPORT[1])):
        done = Running([sys.executable, "-m", "crawler", *words], folder, words[0], {}).wait()
        assert done.code == 0, done.err
    return done.out


def notes(folder: Path) -> dict[str, str]:
    """The files without the times of their visits, by their names without what tells URLs apart."""
    paths = (folder / "notes").rglob("*.md")
    return {path.stem.rpartition("-")[0]: OF_VISIT.sub("", path.read_text()) for path in paths}


def times(folder: Path) -> dict[str, int]:
    return {path.stem.rpartition("-")[0]: path.stat().st_mtime_ns for path in (folder / "notes").rglob("*.md")}


def test_the_folder_is_each_week_what_a_fresh_crawl_gives(tmp_path: Path) -> None:
    weekly = tmp_path / "weekly"
    with Manual() as site:
        do_recipe(weekly, site)
        first, first_times = notes(weekly), times(weekly)
        assert len(first) == 1 + len(ALWAYS) - 1 + len(AWHILE) + 4

        site.week = 2
        assert "removed, because of earlier visits: 12 files" in do_recipe(weekly, site, "--due-within", "8d")
        do_recipe(tmp_path / "second", site)
        second, second_times, fresh = notes(weekly), times(weekly), notes(tmp_path / "second")
        assert second.keys() - fresh.keys() == {"docs-busy", "docs-locked"}  # not fetched for now, so their files stay
        assert fresh.keys() <= second.keys()
        assert {name for name in fresh if second[name] != fresh[name]} == {"docs-links"}
        assert second["docs-links"].replace("(docs-busy-", "") != second["docs-links"]  # only that link differs
        rewritten = {name for name in first.keys() & second.keys() if first_times[name] != second_times[name]}
        assert rewritten == {name for name in first.keys() & second.keys() if first[name] != second[name]}

        site.week = 3
        do_recipe(weekly, site, "--due-within", "8d")
        do_recipe(tmp_path / "third", site)
        third, third_times = notes(weekly), times(weekly)
        assert third == notes(tmp_path / "third")
        rewritten = {name for name in second.keys() & third.keys() if second_times[name] != third_times[name]}
        assert rewritten == {name for name in second.keys() & third.keys() if second[name] != third[name]}
        assert "docs-stays" not in rewritten and {"docs-changes", "docs-links"} <= rewritten
