"""Pages that were archived with their requisites look in replay as on their sites: in pywb, and in ReplayWeb.page from a
WACZ file. Chromium takes pictures of documentation in all three, and compares them itself.

Needs what `test_replay.py` and `test_replayweb.py` need, and documentation packages (`bench/docweb.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from bench.docweb import API_PACKAGES, MANUAL_PACKAGES, PACKAGES, available, serve
from tests.apps.applications import APPLICATIONS, start
from tests.e2e.harness import answering
from tests.observe.web.browser import Browser
from tests.sinks.test_replay import replaying
from tests.sinks.test_replayweb import Publisher
from tests.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

PAGES = {
    "python": ["index.html", "library/asyncio.html", "whatsnew/3.11.html", "c-api/abstract.html", "genindex.html"],
    "postgresql": ["index.html", "sql.html", "tutorial.html"],
    "django": ["index.html", "intro/tutorial01.html", "ref/models/index.html", "topics/db/queries.html"],
    "java": ["index.html", "java.base/module-summary.html", "java.base/java/lang/String.html"],
    "rust": ["index.html", "std/index.html", "book/index.html"],
    "sqlite": ["index.html", "lang.html"],
    "node": ["index.html", "fs.html"],
}
SIZE = 1_000, 800
TOLERANCE, OF_APPLICATIONS = 0.02, 0.05
"""The share of pixels that may differ: the search field of javadoc waits for an index that its scripts load. Each row of a
report of Trac says how long ago it was made, which is more on the live page. Without style sheets, more than a fifth
differs on most pages."""

PAUSE_S, STABLE, MOST_S = 0.3, 3, 20.0
"""Seconds between two pictures, how many equal ones in a row end the waiting for a page on its site, and the most seconds
for a page."""

FRAME = """<!doctype html>
<style>* {{ margin: 0; border: 0 }} iframe {{ display: block; width: 100vw; height: 100vh }}</style>
<iframe src="{}"></iframe>"""
"""pywb shows the pages in it without its own frame."""

EMBEDDING = """<!doctype html><script src="/ui.js"></script>
<style>* {{ margin: 0; border: 0 }} replay-web-page {{ display: block; height: 100vh }}</style>
<replay-web-page embed="replayonly" source="/crawl.wacz" url="{url}" replayBase="/replay/"></replay-web-page>"""

COMPARING = """
delete window.share;
async function pixels(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  const context = new OffscreenCanvas(%d, %d).getContext("2d");
  context.drawImage(image, 0, 0);
  return new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
}
Promise.all([%s].map(pixels)).then(([a, b]) => {
  window.share = a.filter((pixel, at) => pixel != b[at]).length / a.length;
});"""


@dataclass
class Look:
    """`folder`: has the output of a crawl of `urls` in `out`; `live`: their pictures on the sites."""

    folder: Path
    urls: list[str]
    live: list[bytes] = field(default_factory=list)

    async def take(self, place_of: Callable[[str], str], *options: str) -> list[bytes]:
        """Take pictures of what is at `place_of` each URL, once they are as on the site, or no longer change."""
        pictures: list[bytes] = []
        async with Browser(*options) as browser:
            await browser.look(*SIZE)
            for number, url in enumerate(self.urls):
                await browser.open(place_of(url))
                shown, seen, until = b"", 0, time.monotonic() + MOST_S
                while seen < STABLE and time.monotonic() < until:
                    await asyncio.sleep(PAUSE_S)
                    before, shown = shown, await browser.screenshot()
                    seen = seen + 1 if shown == before else 0
                    if self.live and shown == self.live[number]:
                        break
                    seen = 0 if self.live else seen
                pictures.append(shown)
        return pictures

    async def differing(self, pictures: Sequence[bytes], tolerance: float = TOLERANCE) -> dict[str, float]:
        """The URLs whose pictures differ from the live ones in more than `tolerance`, and in which share of pixels."""
        pairs = {url: pair for url, *pair in zip(self.urls, self.live, pictures, strict=True) if pair[0] != pair[1]}
        shares: dict[str, float] = {}
        async with Browser() as browser:
            for url, pair in pairs.items():
                sources = ", ".join(f"'data:image/png;base64,{base64.b64encode(one).decode()}'" for one in pair)
                await browser.value(COMPARING % (*SIZE, sources))
                await browser.wait_for("window.share !== undefined")
                shares[url] = await browser.value("window.share")
        return {url: share for url, share in shares.items() if share > tolerance}


def archived(urls: Sequence[str], folder: Path, *words: str) -> None:
    """Crawl `urls`, and no further unless `words` say so, into `folder`, with their requisites."""
    (folder / "settings.toml").write_text("[archive]\nrequisites = true\n")
    command = [sys.executable, "-m", "crawler", "crawl", *urls, "--quiet", "--delay", "0", "--max-depth", "0", *words]
    places = [f"{name}={folder / value}" for name, value in (("--out", "out"), ("--data-dir", "data"))]
    command += [*places, f"--settings={folder / 'settings.toml'}"]
    subprocess.run(command, check=True, capture_output=True, timeout=500)


@pytest.fixture(scope="module")
def look(tmp_path_factory: pytest.TempPathFactory) -> Look:
    folder = tmp_path_factory.mktemp("look")
    packages = available({**PACKAGES, **API_PACKAGES, **MANUAL_PACKAGES})
    files = [(name, page) for name in PAGES if name in packages for page in PAGES[name]]
    with serve(copies=1, wanted=packages) as web:
        look = Look(
            folder, [f"http://{name}-00.test/{page}" for name, page in files if (packages[name] / page).exists()]
        )
        archived(look.urls, folder, *(f"--host-map={mapping}" for mapping in web.host_map))
        rule = f"--host-resolver-rules=MAP *.test 127.0.0.1:{web.port}"
        look.live = asyncio.run(look.take(lambda url: url, rule))
    return look


def in_pywb(look: Look, tmp_path: Path) -> list[bytes]:
    """Pictures of the pages in pywb."""
    with (
        replaying(look.folder / "out", tmp_path) as wayback,
        Site(lambda request: FRAME.format(unquote(request.path[2:]))) as site,
    ):
        return asyncio.run(look.take(lambda url: f"{site.url}?{quote(wayback.url(url, '', 'mp_'))}"))


def test_pywb_shows_pages_as_their_sites_do(look: Look, tmp_path: Path) -> None:
    assert asyncio.run(look.differing(in_pywb(look, tmp_path))) == {}


@pytest.mark.parametrize("name", ["DokuWiki", "MediaWiki", "Trac", "WordPress"])
def test_pywb_shows_applications_as_they_are(name: str, tmp_path: Path) -> None:
    if not APPLICATIONS[name].is_installed:
        pytest.skip(f"needs {name}")
    tmp_path.chmod(0o755)
    (tmp_path / "site").mkdir(0o755)
    with start(name, tmp_path / "site") as site:
        allowed = ["--allow=127.0.0.1", f"--port={urlsplit(site.url).port}"]
        archived([site.url], tmp_path, "--max-depth=1", "--max-pages=4", *allowed)
        lines = [
            json.loads(line) for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()
        ]
        look = Look(
            tmp_path, [line["url"] for line in lines if (line["status"], line["content_type"]) == (200, "text/html")]
        )
        look.live = asyncio.run(look.take(lambda url: url))
    assert len(look.urls) > 1
    assert asyncio.run(look.differing(in_pywb(look, tmp_path), OF_APPLICATIONS)) == {}


def test_replayweb_page_shows_pages_as_their_sites_do(look: Look, tmp_path: Path) -> None:
    packed = tmp_path / "crawl.wacz"
    words = ["export", str(look.folder / "out"), "--format", "wacz", "--out", str(packed)]
    subprocess.run([sys.executable, "-m", "crawler", *words], check=True, capture_output=True, timeout=500)
    with answering(Publisher(packed)) as publisher:

        def place_of(url: str) -> str:
            publisher.page = EMBEDDING.format(url=url).encode()
            return f"http://localhost:{publisher.server_address[1]}/"

        pictures = asyncio.run(look.take(place_of))
    assert asyncio.run(look.differing(pictures)) == {}
