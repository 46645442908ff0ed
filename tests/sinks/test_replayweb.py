"""ReplayWeb.page shows a page of a WACZ file in a real browser.

It is not a Python package: REPLAYWEB is the folder with its `ui.js` and `sw.js`, by default `.replayweb` (`.ci/run`
makes it):

    npm pack replaywebpage && tar xzf replaywebpage-*.tgz
    REPLAYWEB=package pytest tests/sinks/test_replayweb.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crawler import Crawl
from tests.e2e.harness import ROOT, answering, wait_until
from tests.site import Site

pytestmark = [pytest.mark.e2e, pytest.mark.long]

REPLAYWEB = Path(os.environ.get("REPLAYWEB") or ROOT / ".replayweb")
CHROMIUM = shutil.which("chromium")

if not CHROMIUM or not (REPLAYWEB / "sw.js").exists():
    if os.environ.get("CI"):
        raise RuntimeError("CI must install chromium and ReplayWeb.page; see .ci/run")
    pytest.skip("needs Debian's chromium and ReplayWeb.page", allow_module_level=True)

PAGE = """<!doctype html><script src="/ui.js"></script>
<replay-web-page source="/crawl.wacz" url="{url}" replayBase="/replay/"></replay-web-page>
<script>
function shown(root) {{
  let text = "";
  for (const element of root.querySelectorAll("*")) {{
    if (element.shadowRoot) text += shown(element.shadowRoot);
    const inner = element.tagName == "IFRAME" && element.contentDocument;
    if (inner) text += (inner.body?.innerText ?? "") + shown(inner);
  }}
  return text;
}}
setInterval(() => fetch("/shown", {{ method: "POST", body: shown(document) }}), 200);
</script>"""
"""Shows the page at `url`, and reports the text of all frames. They are in the shadow trees of elements."""


class Publisher(ThreadingHTTPServer):
    """Serves the viewer, the WACZ file in ranges, and a page that embeds both."""

    daemon_threads = True

    def __init__(self, wacz: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wacz = wacz.read_bytes()
        self.page = b""
        self.shown = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Publisher

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.server.shown = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(204, b"", "text/plain")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/crawl.wacz":
            self._range(self.server.wacz)
        elif path == "/":
            self._answer(200, self.server.page, "text/html")
        elif (file := REPLAYWEB / path.rpartition("/")[2]).is_file():
            self._answer(200, file.read_bytes(), "text/javascript")
        else:
            self._answer(404, b"", "text/plain")

    def _range(self, data: bytes) -> None:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, len(data) - int(last))
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        self._answer(206, data[start:end], "application/wacz", f"bytes {start}-{end - 1}/{len(data)}")

    def _answer(self, status: int, body: bytes, media: str, content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media)
        self.send_header("Content-Length", str(len(body)))
        if content_range:
            self.send_header("Content-Range", content_range)
            self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def look(publisher: Publisher, url: str, expected: str, folder: Path) -> None:
    """Show the page at `url` until it has the text `expected`."""
    publisher.page = PAGE.format(url=url).encode()
    words = [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'chromium'}"]
    # The service worker of the viewer needs a secure origin: localhost is one, an address is not.
    words.append(f"http://localhost:{publisher.server_address[1]}/")
    browser = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: expected in publisher.shown, f"{expected!r} on the page")
    finally:
        browser.terminate()
        browser.wait(60)


def test_a_rendered_application_runs_again_on_what_it_had_loaded(tmp_path: Path) -> None:
    from tests.app.test_rendering import shop  # skips without its browser

    with Site(shop) as site:
        settings = site.settings(tmp_path)
        settings["fetch"]["host_map"] = site.host_map("shop.test", "cdn.test")
        settings |= {"render": {"mode": "always"}, "limits": {"max_pages": 1}}
        Crawl(["http://shop.test/"], settings=settings).run()
    wacz = tmp_path / "shop.wacz"
    command = ["export", str(tmp_path / "out"), "--format", "wacz", "--out", str(wacz)]
    subprocess.run([sys.executable, "-m", "crawler", *command], check=True)
    with answering(Publisher(wacz)) as publisher:
        look(publisher, "http://shop.test/", "Item 2", tmp_path)  # which only its script shows
