"""Pages of real documentation behind nginx are visited again, and some change meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from bench.docweb import CONFIGURATION, available, nginx
from tests.e2e.harness import Running, toml, wait_until
from tests.ports import free_port

pytestmark = pytest.mark.e2e

if not (available() and shutil.which("nginx")):
    if os.environ.get("CI"):
        raise RuntimeError("CI must install nginx-light and the documentation packages; see .ci/run")
    pytest.skip("needs nginx and Debian's documentation packages", allow_module_level=True)

PAGES, CHANGED = 60, 12
EVERY_S = 3.0
LATE_S = 6.0
"""How late a visit may be on a busy machine. Its interval is compared with the interval of the rule."""

SERVER = """
log_format visits '$msec $status $request_uri';
access_log {folder}/visits.log visits;
server {{ listen 127.0.0.1:{port}; root {folder}/site; index index.html; }}
"""


def copied(folder: Path) -> list[Path]:
    """Some pages of a package, copied to `folder`, and a page that links to them."""
    package = next(iter(available().values()))
    folder.mkdir()
    pages = []
    for number, path in enumerate(
        sorted(package.rglob("*.html"), key=lambda path: (path.stat().st_size, path))[:PAGES]
    ):
        pages.append(folder / f"{number}.html")
        shutil.copyfile(path, pages[-1])
    (folder / "index.html").write_text("".join(f'<a href="{page.name}">x</a>' for page in pages))
    long_ago = time.time() - 86_400
    for page in folder.iterdir():
        os.utime(page, (long_ago, long_ago))
    return pages


def visits(folder: Path) -> list[tuple[float, int, str]]:
    """Time, status and page of each request so far for one of the pages."""
    lines = (line.split(" ") for line in (folder / "visits.log").read_text().splitlines())
    return [(float(at), int(status), path[1:]) for at, status, path in lines if path.endswith(".html")]


def test_all_changes_are_found_in_time_and_unchanged_pages_cost_a_304(tmp_path: Path) -> None:
    pages, port = copied(tmp_path / "site"), free_port()
    tables = {
        "politeness": {"delay": 0.0, "parallel": 4, "response_share": 0},
        "fetch": {"host_map": [f"site.test=127.0.0.1:{port}"]},
        "scope": {"include": [r"^http://site\.test/(\d+\.html|index\.html)$"]},
        "replica": {"data_dir": str(tmp_path / "data"), "out": str(tmp_path / "out"), "interval": 0.5},
        "recrawl": {"rules": [f"every={EVERY_S:g}s"]},
    }
    (tmp_path / "crawler.toml").write_text(toml(tables))
    options = ["--settings", str(tmp_path / "crawler.toml")]
    configuration = CONFIGURATION.format(
        folder=tmp_path, servers=SERVER.format(folder=tmp_path, port=port), certificate=""
    )
    with nginx(tmp_path, configuration, port):
        words = [sys.executable, "-m", "crawler"]
        seeded = Running([*words, "seed", *options, "http://site.test/index.html"], tmp_path, "seed", {}).wait()
        assert seeded.code == 0, seeded.err
        crawler = Running([*words, "run", *options], tmp_path, "run", {})
        try:
            wait_until(lambda: Counter(s for _, s, _ in visits(tmp_path))[304] > PAGES, "the second visits")
            touched: dict[str, float] = {}
            for page in pages[::5]:
                page.write_bytes(page.read_bytes() + b"<!-- changed -->")
                touched[page.name] = page.stat().st_mtime
                time.sleep(0.1)
            wait_until(lambda: found(tmp_path, touched) == touched.keys(), "the changes")
            seen = len(visits(tmp_path))
            wait_until(lambda: len(visits(tmp_path)) > seen + 2 * PAGES, "more visits")
        finally:
            crawler.send(signal.SIGTERM)
            done = crawler.wait()
        assert done.code == 0, done.err
        log = visits(tmp_path)
    assert len(touched) == CHANGED
    for name, changed_at in touched.items():
        assert min(at for at, status, page in log if page == name and status == 200 and at > changed_at) < (
            changed_at + EVERY_S + LATE_S
        )
    bodies = Counter(page for _, status, page in log if status == 200)
    assert bodies == {**dict.fromkeys((page.name for page in pages), 1), "index.html": 1, **dict.fromkeys(touched, 2)}
    assert {status for _, status, _ in log} == {200, 304}


def found(folder: Path, touched: dict[str, float]) -> set[str]:
    """The pages that were sent again since they have changed."""
    return {page for at, status, page in visits(folder) if status == 200 and at > touched.get(page, at)}
