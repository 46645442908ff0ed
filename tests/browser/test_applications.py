"""Applications made with real frameworks are crawled whole with `render.mode = "auto"`: all routes, titles and texts."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from crawler import Crawl, Handle, ParsedPage, Router
from crawler.browser.process import find_browser
from crawler.errors import BrowserFailed
from tests.e2e.harness import ROOT
from tests.site import Reply, Request, Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

BUILT = Path(os.environ.get("APPLICATIONS") or ROOT / ".applications")
"""What `npm run build` in `applications/` has made (`.ci/run`)."""

NAMES = ("react", "vue", "svelte", "angular")
TYPES = {".js": "text/javascript", ".css": "text/css"}
THINGS = {1: [1, 2, 3, 4], 2: [5, 6, 7, 8]}
TEXT = "What there is to say of thing {}, and of no other."

ROUTES = {"/": "All the things there are.", "/about": "Made with a framework."}
ROUTES |= {f"/list/{number}": f"Thing {ids[-1]}" for number, ids in THINGS.items()}
ROUTES |= {f"/thing/{number}": TEXT.format(number) for ids in THINGS.values() for number in ids}
TITLES = {"/": "Home", "/about": "About", "/list/1": "List 1", "/list/2": "List 2"}


def data(name: str) -> object:
    kind, _, number = name.partition("-")
    if kind == "list":
        return {"title": f"List {number}", "things": THINGS[int(number)]}
    return {"title": f"Thing {number}", "text": TEXT.format(number)}


def application(folder: Path) -> Site:
    """Serves files of `folder`, data, and for all other paths the shell of the application."""

    def respond(request: Request) -> Reply | bytes | None:
        if request.path.startswith("/data/"):
            found = data(request.path.removeprefix("/data/").removesuffix(".json"))
            return Reply(json.dumps(found), headers={"Content-Type": "application/json"})
        file = folder / request.path[1:]
        if file.suffix in TYPES and file.is_file():
            return Reply(file.read_bytes(), headers={"Content-Type": TYPES[file.suffix]})
        return None if request.path == "/robots.txt" else (folder / "index.html").read_bytes()

    return Site(respond)


@pytest.mark.parametrize("name", NAMES)
def test_all_routes_of_an_application_are_found(name: str, tmp_path: Path) -> None:
    try:
        find_browser()
    except BrowserFailed:
        pytest.skip("needs Debian's chromium-headless-shell")
    built = BUILT / name / "dist"
    if not built.is_dir():
        if os.environ.get("CI"):
            raise RuntimeError("CI must build the applications; see .ci/run")
        pytest.skip("needs the applications that .ci/run builds")
    router = Router()

    @router.handler("")
    def note(page: ParsedPage, crawl: Handle) -> None:
        assert page.rendered is not None
        texts = " ".join(page.document.root.text.split()) if page.document.root is not None else ""
        crawl.push("pages", {"url": page.url, "title": page.title, "text": texts, "why": page.rendered.why})

    with application(built) as site:
        settings = site.settings(tmp_path)
        settings["render"] = {"mode": "auto", "settle": 0.5}  # of a busy machine
        crawl = Crawl(["http://a.test/"], handlers=router, settings=settings)
        crawl.run()
    found = {item["url"].removeprefix("http://a.test"): item for item in crawl.items("pages")}
    assert found.keys() == ROUTES.keys()
    for path, item in found.items():
        assert item["title"] == TITLES.get(path, f"Thing {path.rpartition('/')[2]}"), path
        assert ROUTES[path] in item["text"], path
    assert {item["why"] for item in found.values()} == {"shell"}
