"""A crawl is replayed by pywb from its folder as it lies and from a WACZ file, and shown by a browser.

pywb pins an old Redis client, so it has an environment of its own, with py-wacz, and WAYBACK is the path of its `wayback`:

    python -m venv /tmp/pywb && /tmp/pywb/bin/pip install pywb wacz 'setuptools<81'
    WAYBACK=/tmp/pywb/bin/wayback pytest tests/sinks/test_replay.py

With SCREENSHOT=FILE the picture of the replayed page is kept there: `docs/img/replay.png` was made so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from crawler.sinks.forget import DomainRewriter
from frontier.domains import is_of
from tests.e2e.harness import wait_until
from tests.ports import free_port
from tests.sinks.test_reader import POSTS, posted
from tests.sinks.values import NOON, archived, exchange, page

pytestmark = [pytest.mark.e2e, pytest.mark.long]

WAYBACK = os.environ.get("WAYBACK") or shutil.which("wayback")
WACZ, WB_MANAGER = (str(Path(WAYBACK or "wayback").with_name(name)) for name in ("wacz", "wb-manager"))
CHROMIUM = shutil.which("chromium")

if not WAYBACK:
    if os.environ.get("CI"):
        raise RuntimeError("CI must install pywb and name its wayback in WAYBACK; see the head of this file")
    pytest.skip("needs pywb", allow_module_level=True)

needs_wacz = pytest.mark.skipif(
    not Path(WACZ).exists() and not os.environ.get("CI"), reason="needs py-wacz in the environment of pywb"
)

CONFIGURATION = "collections:\n  crawl:\n    index_paths: {folder}/\n    archive_paths: {folder}/\n"


class _StaysPut(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


_open = urllib.request.build_opener(_StaysPut).open


@dataclass(frozen=True, slots=True)
class Wayback:
    """pywb, serving the collection `crawl`. `id_` asks for the page as it was received, without the frame around it."""

    port: int

    def url(self, page: str, timestamp: str = "", how: str = "") -> str:
        return f"http://127.0.0.1:{self.port}/crawl/{timestamp}{how}/{page}"

    def status(self, page: str, timestamp: str) -> int:
        try:
            with _open(self.url(page, timestamp, "id_"), timeout=180) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


@contextmanager
def replaying(crawl: Path | None, folder: Path) -> Iterator[Wayback]:
    """`crawl`: its folder; None if `folder` has a collection that `wb-manager` has made."""
    if crawl is not None:
        (folder / "config.yaml").write_text(CONFIGURATION.format(folder=crawl))
    port = free_port()
    words = [str(WAYBACK), "-p", str(port), "-b", "127.0.0.1"]
    with (folder / "wayback.log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(port), "pywb")
        yield Wayback(port)
    finally:
        process.terminate()
        process.wait(180)


def _answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            return True
    except OSError:
        return False


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a crawl of a synthetic web, two replicas' files in one folder."""
    folder = tmp_path_factory.mktemp("replay")
    words = ["--replicas", "2", "--domains", "6", "--pages", "80", "--out", str(folder / "out")]
    subprocess.run([sys.executable, "-m", "tests.simweb", "demo", *words], check=True, capture_output=True, timeout=500)
    return folder / "out"


def indexed(crawl: Path) -> list[tuple[str, dict[str, str]]]:
    """Timestamp and fields of all lines of the indexes."""
    lines = [line for path in sorted(crawl.glob("*.cdxj")) for line in path.read_bytes().splitlines()]
    split = [line.decode().split(" ", 2) for line in lines]
    return [(timestamp, msgspec.json.decode(fields, type=dict[str, str])) for _, timestamp, fields in split]


def test_every_page_comes_back_with_its_status(crawl: Path, tmp_path: Path) -> None:
    found = indexed(crawl)
    assert len(found) > 50
    with replaying(crawl, tmp_path) as wayback:
        for timestamp, fields in found:
            # A revisit record has no status in the index: pywb takes it, and the body, from the record referred to.
            expected = int(fields["status"]) if "status" in fields else 200
            assert wayback.status(fields["url"], timestamp) == expected, fields


@pytest.mark.parametrize("name", ["form", "json", "bytes"])
async def test_pywb_answers_a_post_as_the_site_did(tmp_path: Path, name: str) -> None:
    await archived(tmp_path / "out", [page(posted(name)), page(exchange(name, b"<p>other"))], wall=lambda: NOON)
    media, body, _ = POSTS[name]
    with replaying(tmp_path / "out", tmp_path) as wayback:
        request = urllib.request.Request(
            wayback.url(posted(name).url, "", "id_"), body, {"Content-Type": media.decode()}
        )
        with _open(request, timeout=180) as answer:
            assert answer.read() == b"<p>answer"


def test_what_is_left_after_a_domain_was_forgotten_comes_back(crawl: Path, tmp_path: Path) -> None:
    """Also pages that had the same body as one of the domain, which referred to its record."""
    copy = tmp_path / "copy"
    shutil.copytree(crawl, copy)
    before = indexed(crawl)
    urls = [fields["url"] for _, fields in before]
    domain = max(("d00000.test", "d00001.test"), key=lambda one: sum(is_of(url, one) for url in urls))
    DomainRewriter(copy, domain).rewrite()
    found = indexed(copy)
    assert sorted(fields["url"] for _, fields in found) == sorted(url for url in urls if not is_of(url, domain))
    with replaying(copy, tmp_path) as wayback:
        for timestamp, fields in found:
            expected = int(fields["status"]) if "status" in fields else 200
            assert wayback.status(fields["url"], timestamp) == expected, fields
        gone = next(fields["url"] for _, fields in before if is_of(fields["url"], domain))
        assert wayback.status(gone, before[0][0]) == 404


@pytest.fixture(scope="module")
def packed(crawl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same crawl as a WACZ file."""
    file = tmp_path_factory.mktemp("wacz") / "crawl.wacz"
    words = ["export", str(crawl), "--format", "wacz", "--text", "text", "--out", str(file)]
    subprocess.run([sys.executable, "-m", "crawler", *words], check=True, capture_output=True, timeout=500)
    return file


@needs_wacz
def test_py_wacz_finds_a_wacz_file_valid(packed: Path, tmp_path: Path) -> None:
    def judged(file: Path) -> tuple[int, str]:
        done = subprocess.run(
            [WACZ, "validate", "-f", str(file)], check=False, capture_output=True, text=True, timeout=500
        )
        return done.returncode, done.stdout

    code, said = judged(packed)
    assert (code, said.splitlines()[-1]) == (0, "Validation succeeded, the passed WACZ is valid")
    assert "Version detected as 1.1.1" in said
    with zipfile.ZipFile(packed) as good, zipfile.ZipFile(tmp_path / "bad.wacz", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, good.read(name) + (b"\n" if name == "pages/pages.jsonl" else b""))
    assert judged(tmp_path / "bad.wacz")[0] == 1


def test_pywb_replays_a_wacz_file(crawl: Path, packed: Path, tmp_path: Path) -> None:
    for words in (["init", "crawl"], ["add", "--unpack-wacz", "crawl", str(packed)]):
        subprocess.run([WB_MANAGER, *words], cwd=tmp_path, check=True, capture_output=True, timeout=500)
    with replaying(None, tmp_path) as wayback:
        for timestamp, fields in indexed(crawl):
            expected = int(fields["status"]) if "status" in fields else 200
            assert wayback.status(fields["url"], timestamp) == expected, fields


@pytest.mark.skipif(not CHROMIUM, reason="needs Debian's chromium")
def test_a_browser_shows_a_replayed_page(crawl: Path, tmp_path: Path) -> None:
    timestamp, fields = next((at, fields) for at, fields in indexed(crawl) if fields["url"].endswith(".test/"))
    host = urllib.parse.urlsplit(fields["url"]).hostname
    picture = Path(os.environ.get("SCREENSHOT") or tmp_path / "replay.png")
    with replaying(crawl, tmp_path) as wayback:
        shown = browse(wayback.url(fields["url"], timestamp, "id_"), tmp_path, "--dump-dom")
        browse(wayback.url(fields["url"], timestamp), tmp_path, f"--screenshot={picture}")
    assert f"<h1>{host}" in shown.replace("\n", "")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 20_000


def browse(url: str, profile: Path, *how: str) -> str:
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1000,640"]
    words += [f"--user-data-dir={profile / 'chromium'}", "--virtual-time-budget=5000", *how, url]
    return subprocess.run([str(CHROMIUM), *words], check=True, capture_output=True, text=True, timeout=500).stdout
