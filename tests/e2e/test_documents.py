"""The commands of the README and the tutorial work as written, one after the other, in the reader's own folders."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import duckdb
import pytest

from tests.e2e.document_commands import (
    HOSTS,
    DocumentedSite,
    Shell,
    blocks,
    cloned,
    commands,
    named_queue,
    packages,
    started,
)
from tests.e2e.harness import ROOT, Running, wait_until
from tests.ports import free_port
from tests.valkey import ValkeyProcess

pytestmark = [pytest.mark.e2e, pytest.mark.long]

README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
DEPLOY = ROOT / "deploy" / "README.md"
INSTALL = "python3 -m venv .venv && .venv/bin/pip install ."

ELSEWHERE = {
    "make demo": "tests/sinks/test_replay.py runs it in small",
    "make test": "this test is part of it",
    "pip install .": "the README's first command installs it",
}
"""Commands that are not run here, and why."""

NOT_HERE = ("docker", "kubectl", "helm", "kustomize", "systemctl")
"""Programs without which a block cannot be run. tests/deploy checks the files that such blocks apply."""

OF_THE_SHOP = ("store.test", "teas")
"""What is in the blocks of the tutorial's project, which tests/spiders/test_tutorial.py runs."""


def pieces(page: Path) -> Iterator[list[str]]:
    """The commands of each shell block that can be run here."""
    for block in blocks(page, "sh"):
        if any(word in block for word in OF_THE_SHOP):
            continue
        if not re.search(rf"^(?:.*[;(|] *)?(?:{'|'.join(NOT_HERE)}) ", block, re.MULTILINE):
            yield commands(block)


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of the repository in which the README's first command was run."""
    folder = cloned(tmp_path_factory.mktemp("reader") / "clone")
    pip = {
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",
    }  # this is how pip spells "no isolation" in the environment
    Shell(folder, {**pip, "PATH": path_with(folder), "PYTHONPATH": packages()}).type(INSTALL)
    return folder


def path_with(clone: Path) -> str:
    """PATH with the commands of the clone's environment, and then those of this one."""
    return os.pathsep.join([str(clone / ".venv" / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])


@pytest.fixture
def site(tmp_path: Path) -> Iterator[DocumentedSite]:
    with DocumentedSite(tmp_path) as made:
        yield made


@pytest.fixture
def shell(clone: Path, site: DocumentedSite, tmp_path: Path) -> Iterator[Shell]:
    """A shell in the clone, with the crawler in its PATH, the site, and an empty Valkey at `queue`."""
    port = free_port()
    (tmp_path / "valkey").mkdir()
    with ValkeyProcess(tmp_path / "valkey", persistent=True, options=("--port", str(port))):
        environment = {
            **site.environment,
            "CRAWLER_POLITENESS__DELAY": "0.05",
            "CRAWLER_REPLICA__INTERVAL": "0.5",
            "HOME": str(tmp_path),
            "PATH": path_with(clone),
            "PYTHONPATH": f"{named_queue(tmp_path / 'names', port)}:{packages()}",
        }
        yield Shell(clone, environment)


class Reader:
    """Types the commands of a page, and keeps what each of them printed."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.printed: dict[str, str] = {}

    def follow(self, block: list[str]) -> None:
        """Type a block. A `crawler run` gets company by the commands after it, and Ctrl-C at the end."""
        with ExitStack() as stack:
            for line in block:
                if line in ELSEWHERE or line == INSTALL:
                    continue
                if line.startswith("crawler run "):
                    running = stack.enter_context(self.shell.running(line))
                    self._meet(running, shlex.split(line))
                else:
                    self.printed[line] = self.shell.type(line).out

    def _meet(self, running: Running, words: list[str]) -> None:
        """Wait until the replicas run, and open their live pages."""
        count = int(words[words.index("--replicas") + 1]) if "--replicas" in words else 1
        addresses = started(running, count)
        if "--listen" in words:
            port = words[words.index("--listen") + 1].rpartition(":")[2]
            assert [address.rpartition(":")[2] for address in addresses] == [port]
            addresses = [f"127.0.0.1:{port}"]
        for address in addresses:
            with urllib.request.urlopen(f"http://{address}/", timeout=20) as answer:
                assert b"<html" in answer.read()


@contextmanager
def crawling(shell: Shell, site: DocumentedSite, line: str) -> Iterator[Running]:
    """A crawl that has its first page, and gets no other before the end of the block. It has to end cleanly then."""
    site.serving.clear()
    running = shell.start(line)
    try:
        wait_until(lambda: any(one.stat().st_size for one in shell.folder.glob("crawl-out/*.jsonl.open")), "a page")
        yield running
        site.serving.set()
        done = running.wait()
        assert done.code == 0, done.err
    finally:
        if running.is_running:
            running.kill()


def rows(shell: Shell, query: str) -> list[tuple[object, ...]]:
    """The result of a query in the shell's folder."""
    with duckdb.connect() as database:
        return database.execute(f"SET file_search_path = '{shell.folder}'; {query}").fetchall()


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_readme(shell: Shell, site: DocumentedSite) -> None:
    reader = Reader(shell)
    (install, first), *rest = pieces(README)
    assert (install, first) == (INSTALL, ".venv/bin/crawler crawl https://example.com --max-pages 100")
    (query,) = blocks(README, "sql")
    with crawling(shell, site, first):
        assert ("example.com", 200, 1) in rows(shell, query)
    assert rows(shell, query) == [("example.com", 200, site.pages)]

    sites, looks, cluster, develop = rest
    clone = shell.folder
    reader.follow(sites)
    reader.follow(looks)
    found = rows(shell, query)
    assert sorted(found) == [(host, 200, site.pages) for host in ("example.com", "example.org")]
    parquet = re.sub(r"FROM read_json\(.*\)", "FROM 'export/*.pages.parquet'", query)
    assert sorted(rows(shell, parquet)) == sorted(found)
    assert "never queued" in reader.printed["crawler why https://example.com/some/page"]
    assert reader.printed["crawler audit crawl-out"].startswith("polite")

    reader.follow(cluster)
    shell.folder = clone
    reader.follow(develop)


def test_the_tutorial(shell: Shell, site: DocumentedSite, tmp_path: Path) -> None:
    if is_taken(9410) and not os.environ.get("CI"):
        pytest.skip("port 9410 is taken, which the tutorial uses")
    shell.folder = tmp_path / "tutorial"
    shell.folder.mkdir()
    (shell.folder / "seeds.txt").write_text("".join(f"https://{host}/\n" for host in HOSTS))
    reader = Reader(shell)
    install, (first,), second_terminal, *rest = pieces(TUTORIAL)
    reader.follow(install)
    with crawling(shell, site, first):
        reader.follow(second_terminal)
    assert "example.com" in reader.printed["crawler domains"]
    for block in rest:
        reader.follow(block)
    assert reader.printed["crawler why https://example.com/private/"].startswith("settled: denied (robots)")


@pytest.mark.parametrize("page", [DEPLOY, ROOT / "docs" / "reference" / "output.md"], ids=lambda page: page.name)
def test_other_pages_have_only_commands_that_cannot_run_here(page: Path) -> None:
    """A block that could be run needs a test like those above."""
    assert list(pieces(page)) == []
